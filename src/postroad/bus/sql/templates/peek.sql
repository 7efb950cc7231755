-- True when the message with this iid, or any message if no iid is given, is on the queue: ready, delayed or leased; false for an iid that
-- was never issued.  It does not guarantee that a consume will get the message.
create or replace function mbus.peek_{queue}(msgid text default null) returns boolean
language plpgsql security definer set search_path from current as $function$
begin
  return mbus._has({queue_id}, case when $1 is not null then mbus._number('{queue}', $1) end);
exception when sqlstate 'MB009' then
  return false;
end $function$;
