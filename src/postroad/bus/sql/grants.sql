-- mbus_<db>_user may read the views that show no payloads, mbus_<db>_admin all; see after.sql for functions.
-- If the owner may not create roles there are none, and only the owner can use the bus.
do $grants$
begin
  if exists (select from pg_roles where rolname = mbus._role('admin')) then
    execute format('grant select on mbus.queues, mbus.consumers, mbus.status, mbus.workers, mbus.measures, mbus.handling to %I, %I',
                   mbus._role('admin'), mbus._role('user'));
    execute format('grant select on mbus.dead, mbus.dead_originals, mbus.followers, mbus.saga_list, mbus.saga_status, mbus.schedules,
                      mbus.schedule_run, mbus.replays to %I', mbus._role('admin'));
  end if;
end $grants$;
