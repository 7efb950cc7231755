-- True when this database is a restored dump or a copy of a template, and neither mbus.maintain nor mbus.after_restore has run since.
-- Until then takes find all messages but are slower, and new messages of a copy get the iids of the original.
create or replace function mbus.is_restored() returns boolean
language sql stable security definer set search_path from current as $$
  select not mbus._is_home() or n.system_identifier <> s.system_identifier
  from mbus.node n cross join pg_control_system() s
$$;

-- Repairs the bus of a restored dump or a copy.  mbus.maintain does it automatically, so call it only to set
-- is_copy, or if no maintenance runs.
--   is_copy  true: the original stays in use, so this bus gets a new node name and its messages get new iids; false: this database
--            replaces the original and keeps the name; null: a copy if the original is still a database of this server
create or replace function mbus.after_restore(is_copy boolean default null) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue mbus.queue;
begin
  perform from mbus.node for update;
  if coalesce($1, (select n.database_oid <> c.oid and s.system_identifier = n.system_identifier
                   from mbus.node n cross join pg_control_system() s
                   join pg_database d on d.oid = n.database_oid
                   join pg_database c on c.datname = current_database())) then
    update mbus.node set name = substr(replace(gen_random_uuid()::text, '-', ''), 1, 6);
    $1 := true;
  end if;
  perform mbus._stay();
  for v_queue in select * from mbus.queue order by id loop
    v_queue := mbus._alter(v_queue.id);
    perform mbus._reset_hints(v_queue);
    if $1 then
      perform mbus._generate(v_queue), mbus._rebuild_views(v_queue);
    end if;
  end loop;
end $$;
