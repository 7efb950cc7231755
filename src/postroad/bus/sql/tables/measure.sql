-- Histograms of workers' measurements of a consumer's messages: in total (since -infinity) and per hour of the last week.
--   counts  values per bucket of mbus._bounds, the last bucket for greater ones;  total: their sum
create table mbus.measure (
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  kind        text not null constraint measure_is_known check (kind in ('wait', 'handled', 'failed', 'attempts', 'batch')),
  since       timestamptz not null,
  counts      bigint[] not null,
  total       double precision not null,
  primary key (consumer_id, kind, since)
);
