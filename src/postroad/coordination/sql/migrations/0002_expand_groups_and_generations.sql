-- breaks older: no
alter table coordination.entity add column related text[] not null default '{}';
alter table coordination.entity drop constraint entity_role_is_known;
alter table coordination.entity add constraint entity_role_is_known check (role in ('tracked', 'untracked', 'replica'));
alter table coordination.entity drop constraint table_is_registered_once;
create unique index entity_table_idx on coordination.entity (schema_name, table_name) where role <> 'untracked';
alter table coordination."AppEvent" add column "CommitNumber" bigint;
alter table coordination."AppEvent" set (fillfactor = 85);
alter table coordination.acknowledged add column purged_to bigint not null default 0;
-- What the Writer does not have any more was removed.
update coordination.acknowledged a
set purged_to = coalesce((select min(e."Position") - 1 from coordination."AppEvent" e), a.finished_to)
where exists (select from coordination.node n where n.role = 'writer');
alter table coordination.acknowledged add column writer_to bigint not null default 0;
alter table coordination.progress add column generation integer not null default 0;
alter table coordination.progress add column needs_snapshot boolean not null default false;
alter table coordination.reader add column generation integer not null default 0;
-- creates: tables/removed_reader.sql
drop function if exists coordination._advance_one(coordination.staging, coordination.progress);
drop function if exists coordination._apply_with_following(coordination.staging, jsonb);
drop function if exists coordination._following(coordination.staging, bigint);
drop function if exists coordination._apply_at_once(jsonb, bigint[], jsonb);
drop function if exists coordination._compensate(coordination.entity, bigint, text);
-- Alerts of parked events are named by their Reader, too.  Those of the old name are cleared; the events are tried once more, and what is
-- parked again raises its own.
do $parked$
begin
  if to_regnamespace('alerts') is not null then
    execute 'select alerts.clear(''coordination.parked.'' || s.event_id) from coordination.staging s where s.attempts > 0';
  end if;
  update coordination.staging s set parked_at = null, next_try_at = null, attempts = least(s.attempts, p.max_attempts - 1)
  from coordination.progress p where s.parked_at is not null;
end $parked$;
