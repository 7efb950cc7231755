-- A channel of the settings.  Its address is a secret and is not stored here.
--   gap             the current minimum time between two notices; grows while alerts continue, so that a storm causes few notices
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
