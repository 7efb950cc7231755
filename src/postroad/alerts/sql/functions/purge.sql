-- Delete episodes that were cleared, and notices that were sent or given up, before p_keep.  Returns the number of rows.
create or replace function alerts.purge(p_keep interval) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_alerts  bigint;
  v_notices bigint;
begin
  delete from alerts.alert a where a.cleared_at < alerts.now() - p_keep
    -- Episodes with an unsent all-clear are kept.
    and not exists (select from alerts.told t join alerts.channel c on c.name = t.channel
                    where t.alert_id = a.id and t.cleared_by is null and c.is_active);
  get diagnostics v_alerts = row_count;
  delete from alerts.notice n where n.created_at < alerts.now() - p_keep and n.state in ('sent', 'given_up');
  get diagnostics v_notices = row_count;
  delete from alerts.handling h
  where coalesce(greatest(h.muted_until, h.owned_at), '-infinity') < alerts.now() - p_keep
    and not exists (select from alerts.alert a where a.key = h.key and a.cleared_at is null);
  return v_alerts + v_notices;
end $$;
