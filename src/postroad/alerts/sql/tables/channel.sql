-- A way to the administrator, as the settings name it.  Its address is a secret of the settings and is not kept here.
--   gap             the least time between two notices now; grows while things go on, so that a storm is told in few
--   last_notice_at  when the last notice was written
create table alerts.channel (
  name           text primary key,
  kind           text not null,
  least_severity text not null,
  is_active      boolean not null default true,
  added_at       timestamptz not null,
  gap            interval not null default '0',
  last_notice_at timestamptz,
  last_digest_at timestamptz
);
