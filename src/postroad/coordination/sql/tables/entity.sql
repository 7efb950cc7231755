-- Entities: tracked by the Writer, kept as a replica by the Reader, or untracked: no longer captured, but with events that are still kept.
create table coordination.entity (
  name           text primary key,
  role           text not null,
  schema_name    text not null,
  table_name     text not null,
  key_columns    text[] not null,
  columns        text[] not null,
  -- The Writer's columns that a Reader uses; null until the first payload names them.
  applied        text[],
  version        integer not null default 1,
  mode           text not null default 'replicate',
  on_conflict    text not null default 'refuse',
  is_subset      boolean not null default false,
  -- Parents come before their children, by foreign keys.
  level          integer not null default 0,
  registered_at  timestamptz not null default pg_catalog.clock_timestamp(),
  -- Entities joined to it by a foreign key, in either direction.
  related        text[] not null default '{}',
  constraint entity_role_is_known check (role in ('tracked', 'untracked', 'replica')),
  constraint entity_mode_is_known check (mode in ('replicate', 'two-phase')),
  constraint rollback_policy_is_known check (on_conflict in ('refuse', 'compensate'))
);
-- A table that is no longer tracked may be tracked under another name.
create unique index entity_table_idx on coordination.entity (schema_name, table_name) where role <> 'untracked';
