-- Readers that were removed; their reports are accepted again after a snapshot.
create table coordination.removed_reader (
  name       text primary key,
  generation integer not null,
  at         timestamptz not null default pg_catalog.clock_timestamp()
);
