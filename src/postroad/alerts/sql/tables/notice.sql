-- The outbox: one notice is one e-mail or one message to one channel, about all items that were due.
--   items        the contents at the time of writing, so that each attempt sends the same text
--   lease_token  new for each sender that takes the notice
create table alerts.notice (
  id           bigint generated always as identity primary key,
  channel      text not null references alerts.channel (name) on delete cascade,
  kind         text not null constraint notice_kind_is_known check (kind in ('alert', 'digest', 'test')),
  state        text not null default 'waiting' constraint notice_state_is_known
                 check (state in ('waiting', 'sending', 'sent', 'given_up')),
  items        jsonb not null,
  attempts     integer not null default 0,
  created_at   timestamptz not null,
  due_at       timestamptz not null,
  leased_until timestamptz,
  lease_token  bigint,
  sent_at      timestamptz,
  error        text,
  constraint lease_needs_token check (state <> 'sending' or (leased_until is not null and lease_token is not null)),
  constraint sent_notice_has_a_time check ((state = 'sent') = (sent_at is not null))
);
create index notice_unsent_idx on alerts.notice (channel, id) where state in ('waiting', 'sending');
create index notice_created_idx on alerts.notice (created_at);
create sequence alerts.lease_token;

-- The episodes that were sent to a channel.  The key ensures that an all-clear is sent once.
create table alerts.told (
  alert_id   bigint not null references alerts.alert (id) on delete cascade,
  channel    text not null references alerts.channel (name) on delete cascade,
  severity   text not null,
  cleared_by bigint,
  primary key (alert_id, channel)
);
create index told_without_all_clear_idx on alerts.told (channel, alert_id) where cleared_by is null;
