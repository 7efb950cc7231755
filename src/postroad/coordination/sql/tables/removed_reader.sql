-- Readers that were removed: their reports count again after a snapshot.
create table coordination.removed_reader (
  name       text primary key,
  generation integer not null,
  at         timestamptz not null default pg_catalog.clock_timestamp()
);
