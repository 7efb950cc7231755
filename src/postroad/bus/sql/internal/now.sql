-- The clock of the bus: the real time, also inside a long transaction.
-- Tests replace this function, which only its owner can do, so production needs no switch.
-- No pinned search_path: it would keep the planner from inlining the body, which names its schema.
create or replace function mbus.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;

-- The longest interval that a caller may pass: added to the current time it still gives a valid time.
create or replace function mbus._longest() returns interval
language sql immutable parallel safe return interval '1000 years';
