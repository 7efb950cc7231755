-- The items that were not yet sent to a channel: episodes that began or became worse, and all-clears of those that were sent.  `since` is
-- when the item became due.  A channel gets no item about its own failure.  A muted item is not sent before the mute ends; its all-clear is
-- sent if the item was sent before.  An episode that was cleared before it was sent is not sent.
create or replace function alerts._items(p_channel alerts.channel)
returns table (alert_id bigint, what text, since timestamptz)
language sql stable set search_path from current as $$
  select a.id, case when t.alert_id is null then 'raised' else 'worse' end, a.raised_at
  from alerts.alert a left join alerts.told t on t.alert_id = a.id and t.channel = p_channel.name
  where a.cleared_at is null
    and alerts._rank(a.severity) >= alerts._rank(p_channel.least_severity)
    and (t.alert_id is null or alerts._rank(a.severity) > alerts._rank(t.severity))
    and a.key <> 'alerts/channel/' || p_channel.name
    and not alerts._is_muted(a.key)
  union all
  select a.id, 'cleared', a.cleared_at
  from alerts.told t join alerts.alert a on a.id = t.alert_id
  where t.channel = p_channel.name and t.cleared_by is null and a.cleared_at is not null
$$;
