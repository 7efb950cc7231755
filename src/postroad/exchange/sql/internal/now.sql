-- The wall clock, for displayed timestamps.  Timeouts do not use it: they count the seconds that servers ran.
-- No pinned search_path: it would keep the planner from inlining the body, which names its schema.
create or replace function exchange.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;
