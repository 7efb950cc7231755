-- A database of an ERP: one mailbox, one folder.
create table exchange.database (
  id            text primary key,
  resolution    text not null default 'marker' constraint resolution_is_known check (resolution in ('marker', 'manual')),
  policy        text constraint database_policy_is_known check (policy in ('go_on', 'wait')),
  committed_seq bigint,
  restored_seq  bigint,
  restored_at   timestamptz,
  -- Whether the alert was raised: a report takes effect after a delay.
  is_restore_told boolean not null default false,
  created_at    timestamptz not null default clock_timestamp(),
  constraint database_id_is_safe check (id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$')
);
create unique index database_differs_not_by_case_alone_idx on exchange.database (lower(id));
