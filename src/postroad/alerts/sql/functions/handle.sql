-- Sets the owner of a problem (null: none) and acknowledges its open episode under the same name.
-- A key without an alert is accepted, because the console also shows problems that raise no alert.  Locks: the rows of the key.
create or replace function alerts.own(p_key text, p_owner text) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform alerts.fold();
  insert into alerts.handling as h (key, owner, owned_at)
  values (p_key, p_owner, case when p_owner is not null then alerts.now() end)
  on conflict (key) do update set owner = excluded.owner, owned_at = excluded.owned_at;
  update alerts.alert a set acked_at = case when p_owner is not null then alerts.now() end, acked_by = p_owner
  where a.key = p_key and a.cleared_at is null;
end $$;

-- Mutes a problem until a time; null: ends the mute.  An alert that is still open at the end and was not sent is sent then; an all-clear is
-- sent in any case.  Returns whether it was muted before.  Locks: the row of the key.  Errors:  MA001.
create or replace function alerts.mute(p_key text, p_until timestamptz, p_reason text, p_by text) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_was constant boolean := alerts._is_muted(p_key);
begin
  if coalesce(p_key, '') = '' or length(p_key) > 200 or p_until is not null and coalesce(p_reason, '') = '' then
    raise exception 'a muted alert needs a key of at most 200 characters and a reason'
      using errcode = 'MA001', hint = 'The reason is shown to everyone who sees the problem.';
  end if;
  update alerts.handling h set muted_until = null, muted_by = null, mute_reason = null where h.key = p_key;
  if p_until is not null then
    insert into alerts.handling (key, muted_until, muted_by, mute_reason)
    values (p_key, p_until, coalesce(p_by, session_user), left(p_reason, 1000))
    on conflict (key) do update
    set muted_until = excluded.muted_until, muted_by = excluded.muted_by, mute_reason = excluded.mute_reason;
  end if;
  return v_was;
end $$;
