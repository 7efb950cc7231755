-- The clock of the schema.  Tests replace this function, which only its owner can do.
create or replace function coordination.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;
