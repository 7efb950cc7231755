-- W3C trace context for what SQL posts.  The setting postroad.traceparent holds the line of the request or message that is
-- being handled, for one transaction: set_config('postroad.traceparent', …, true).  The post of a queue does not read it;
-- a message carries the trace with these headers: mbus.post_orders(data, mbus.trace_headers()).

-- Headers with the trace that is followed, on a span of their own; null when there is none, so that a post without a trace
-- goes its short way.  p_otherwise: the line to take when nothing is followed, one that was stored earlier.
create or replace function mbus.trace_headers(p_otherwise text default null) returns hstore
language plpgsql volatile set search_path from current as $$
declare
  v_line constant text := coalesce(nullif(current_setting('postroad.traceparent', true), ''), p_otherwise);
begin
  if v_line is null or v_line !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then return null; end if;
  -- Never all zeros, which would be no span: the version of the uuid is among its first sixteen digits.
  return hstore('traceparent', left(v_line, 36) || left(replace(gen_random_uuid()::text, '-', ''), 16) || right(v_line, 3));
end $$;

-- The same for several messages, each with the line that was stored for it; null when none of them has one.
create or replace function mbus.trace_headers_of(p_lines text[]) returns hstore[]
language sql volatile set search_path from current as $$
  select case when count(u.line) > 0 then array_agg(mbus.trace_headers(u.line) order by u.place) end
  from unnest(p_lines) with ordinality u (line, place)
$$;

-- Follows the trace of a message for the rest of the transaction, or none when it has none.  Returns the line, or ''.
create or replace function mbus.follow_trace(headers hstore) returns text
language plpgsql volatile set search_path from current as $$
begin
  return set_config('postroad.traceparent', coalesce(headers -> 'traceparent', ''), true);
end $$;
