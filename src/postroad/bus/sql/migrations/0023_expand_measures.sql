-- breaks older: no
create table mbus.measure (
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  kind        text not null constraint measure_is_known check (kind in ('wait', 'handled', 'failed', 'attempts', 'batch')),
  since       timestamptz not null,
  counts      bigint[] not null,
  total       double precision not null,
  primary key (consumer_id, kind, since)
);
