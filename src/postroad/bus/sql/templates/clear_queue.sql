-- Deletes expired messages and returns how many; maintenance does the same unasked.  A message that
-- is alive is never touched.
create or replace function mbus.clear_queue_{queue}() returns bigint
language plpgsql security definer set search_path from current as $function$
begin
  return mbus._expire(mbus._queue('{queue}'), 1000000);
end $function$;
