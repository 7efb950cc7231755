-- breaks older: no
alter table coordination.entity add column related text[] not null default '{}';
alter table coordination.entity drop constraint entity_role_is_known;
alter table coordination.entity add constraint entity_role_is_known check (role in ('tracked', 'untracked', 'replica'));
alter table coordination."AppEvent" add column "CommitNumber" bigint;
alter table coordination."AppEvent" set (fillfactor = 85);
alter table coordination.acknowledged add column purged_to bigint not null default 0;
alter table coordination.acknowledged add column writer_to bigint not null default 0;
alter table coordination.progress add column generation integer not null default 0;
alter table coordination.progress add column needs_snapshot boolean not null default false;
alter table coordination.reader add column generation integer not null default 0;
create table coordination.removed_reader (
  name       text primary key,
  generation integer not null,
  at         timestamptz not null default pg_catalog.clock_timestamp()
);
drop function if exists coordination._advance_one(coordination.staging, coordination.progress);
drop function if exists coordination._apply_with_following(coordination.staging, jsonb);
drop function if exists coordination._following(coordination.staging, bigint);
drop function if exists coordination._apply_at_once(jsonb, bigint[], jsonb);
drop function if exists coordination._compensate(coordination.entity, bigint, text);
