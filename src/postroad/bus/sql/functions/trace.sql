-- W3C trace context for messages posted in SQL.  The setting postroad.traceparent contains the trace of the request or message
-- that is being handled, for one transaction: set_config('postroad.traceparent', …, true).  The post of a queue does not read it;
-- to add the trace to a message, use these headers: mbus.post_orders(data, mbus.trace_headers()).

-- Headers with the current trace and a new span; null if there is none, so that a post without a trace takes the
-- fast path.  p_otherwise: a stored trace to use if there is no current one.
create or replace function mbus.trace_headers(p_otherwise text default null) returns hstore
language plpgsql volatile set search_path from current as $$
declare
  v_line constant text := coalesce(nullif(current_setting('postroad.traceparent', true), ''), p_otherwise);
begin
  if v_line is null or v_line !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then return null; end if;
  -- Never all zeros, which would be invalid: the version of the uuid is among its first sixteen digits.
  return hstore('traceparent', left(v_line, 36) || left(replace(gen_random_uuid()::text, '-', ''), 16) || right(v_line, 3));
end $$;

-- The same for several messages, each with the trace that was stored for it; null if none of them has one.
create or replace function mbus.trace_headers_of(p_lines text[]) returns hstore[]
language sql volatile set search_path from current as $$
  select case when count(u.line) > 0 then array_agg(mbus.trace_headers(u.line) order by u.place) end
  from unnest(p_lines) with ordinality u (line, place)
$$;

-- Sets the trace of the transaction to that of a message, or to none if it has none.  Returns the trace, or ''.
create or replace function mbus.follow_trace(headers hstore) returns text
language plpgsql volatile set search_path from current as $$
begin
  return set_config('postroad.traceparent', coalesce(headers -> 'traceparent', ''), true);
end $$;
