-- What the servers of this journal share: the root, the last generation, the time served, the settings, and which of them sweeps.
create table exchange.server (
  id              integer primary key default 1 constraint there_is_one_server check (id = 1),
  root_id         uuid,
  epoch           bigint not null default 0,
  holder          text,
  started_at      timestamptz,
  seen_at         timestamptz,
  served_seconds  double precision not null default 0,
  started_timeout double precision not null default 600,
  ready_timeout   double precision not null default 600,
  defer_delay     double precision not null default 60,
  suspect_after   integer not null default 5,
  failed_policy   text not null default 'go_on' constraint policy_is_known check (failed_policy in ('go_on', 'wait')),
  events_kept     interval not null default '7 days',
  root_path       text,
  sweeper         bigint,
  -- What the marker of an object store holds, the latest first: one for each time that a first server has started.
  runs            text[] not null default '{}',
  -- The second store of a migration, of the other kind than the root; is_migrating: servers use it, so it may contain files.
  second_root_id   uuid,
  second_root_path text,
  is_migrating     boolean not null default false
);
insert into exchange.server default values;
