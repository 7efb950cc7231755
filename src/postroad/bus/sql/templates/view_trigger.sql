-- Posts rows that are inserted into a view of the queue.
create or replace function mbus._view_{queue}() returns trigger
language plpgsql security definer set search_path from current as $function$
begin
  new.iid := mbus.post_{queue}(new.data, new.headers, new.properties, new.delayed_until, new.expires, new.iid);
  return new;
end $function$;
