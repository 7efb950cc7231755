-- Acknowledges open episodes: no more reminders are sent.  The all-clear is still sent.
-- Returns how many open episodes were acknowledged now; p_key null: all.  Repeatable.  Errors: MA002.
create or replace function alerts.ack(p_key text, p_by text) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_count bigint;
begin
  perform alerts.fold();
  if p_key is not null and not exists (select from alerts.alert a where a.key = p_key) then
    raise exception 'there is no alert %', quote_literal(p_key)
      using errcode = 'MA002', hint = 'List the alerts: postroad alerts list';
  end if;
  update alerts.alert a set acked_at = alerts.now(), acked_by = coalesce(p_by, session_user)
  where (a.key = p_key or p_key is null) and a.cleared_at is null and a.acked_at is null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
