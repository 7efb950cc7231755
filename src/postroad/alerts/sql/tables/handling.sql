-- The decisions of operators about a problem, by its key: who handles it, and until when it is muted.  They are independent of episodes: a
-- problem that recurs while it is muted sends nothing.
create table alerts.handling (
  key         text primary key,
  owner       text,
  owned_at    timestamptz,
  muted_until timestamptz,
  muted_by    text,
  mute_reason text,
  constraint owner_since_a_time check ((owner is null) = (owned_at is null)),
  constraint mute_has_a_reason check (num_nulls(muted_until, muted_by, mute_reason) in (0, 3))
);
