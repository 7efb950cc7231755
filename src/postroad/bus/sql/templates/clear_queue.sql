-- Deletes expired messages and returns their number; maintenance does the same.  Other messages
-- are never touched.
create or replace function mbus.clear_queue_{queue}() returns bigint
language plpgsql security definer set search_path from current as $function$
begin
  -- The cast matters: with a bare literal, mbus._queue(…) would be read as a cast to the array type.
  return mbus._expire(mbus._queue('{queue}'::text), 1000000);
end $function$;
