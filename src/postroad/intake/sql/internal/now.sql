-- The clock of intake: the real time, also inside a long transaction.
-- Tests replace this function, which only its owner can do, so production needs no switch.
create or replace function intake.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;
