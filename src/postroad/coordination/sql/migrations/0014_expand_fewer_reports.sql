-- breaks older: no
alter table coordination.progress add column if not exists reported_at timestamptz not null default pg_catalog.clock_timestamp(),
  add column if not exists reported_to bigint not null default -1;
drop function if exists coordination._report_progress(jsonb, bigint);
