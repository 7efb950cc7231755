-- The clock of the component: the real time, also inside a long transaction.  Tests replace this function.
-- No pinned search_path: it would keep the planner from inlining the body, which names its schema.
create or replace function alerts.now() returns timestamptz
language sql volatile parallel safe as $$ select pg_catalog.clock_timestamp() $$;

-- Whether a moment lies within the last p_window.  A time in the future counts as long ago, because a clock that was set back must not
-- delay a notice.
create or replace function alerts._is_recent(p_moment timestamptz, p_window interval) returns boolean
language sql volatile set search_path from current as $$
  select coalesce(p_moment > alerts.now() - p_window and p_moment <= alerts.now(), false)
$$;
