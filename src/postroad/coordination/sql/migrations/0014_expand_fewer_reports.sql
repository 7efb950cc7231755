-- breaks older: no
alter table coordination.progress drop column if exists told_at, add column if not exists reported_to bigint not null default -1,
  add column if not exists reported_at timestamptz not null default pg_catalog.clock_timestamp();
drop function if exists coordination._report_progress(jsonb, bigint);
