-- The registered bridges.  Their state is kept at their ends: outlet where messages leave a
-- database, inlet where they arrive.  source and target are names from the settings, or addresses without secrets.
create table bridge.bridge (
  name       text primary key constraint bridge_name_is_short check (name ~ '^[a-z][a-z0-9_]{0,30}$'),
  kind       text not null constraint kind_is_known check (kind in ('database', 'rabbitmq_out', 'rabbitmq_in')),
  source     text not null,
  target     text not null,
  queue      text not null,
  queue_at_target text not null,
  selector   text,
  options    jsonb not null default '{}',
  created_at timestamptz not null default clock_timestamp()
);
