-- The services that `postroad up` runs, as last reported by their supervisor.
create table console.service (
  host     text not null,
  name     text not null,
  state    text not null constraint service_state_is_known
             check (state in ('starting', 'running', 'waiting', 'stopped')),
  pid      integer,
  restarts integer not null default 0,
  since    timestamptz not null,
  told_at  timestamptz not null default clock_timestamp(),
  error    text,
  primary key (host, name)
);
