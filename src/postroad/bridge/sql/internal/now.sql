-- The clock of the schema.  Tests replace it, which only its owner can do.
create or replace function bridge.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;
