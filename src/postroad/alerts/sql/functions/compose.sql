-- Write the next notice of a channel if one is due; returns its id or null.
--   p_group_window  alerts raised within it share a notice
--   p_quiet_window  the longest gap between two notices while alerts continue: the gap begins at p_group_window and
--                   grows eightfold with each notice, and is reset after twice p_quiet_window without alerts
--   p_digest_every  how often open alerts that are neither acknowledged nor muted are sent again; null: never
--   p_is_heartbeat  whether a digest is sent even when nothing is open, so that silence means a dead server
-- While the channel has an unsent notice, no other is written: later alerts share the next one.
-- Locks: folding, then the channel's row, so that one session at a time writes a channel's notices.
create or replace function alerts.compose(
  p_channel text, p_group_window interval, p_quiet_window interval, p_digest_every interval default '1 day',
  p_is_heartbeat boolean default false) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_channel alerts.channel;
  v_now     constant timestamptz := alerts.now();
  v_kind    text := 'alert';
  v_items   jsonb;
  v_first   timestamptz;
  v_notice  bigint;
begin
  perform alerts.fold();
  select c.* into v_channel from alerts.channel c where c.name = p_channel and c.is_active for update;
  if not found or exists (
      select from alerts.notice n
      where n.channel = p_channel and n.state in ('waiting', 'sending') and n.kind <> 'test') then
    return null;
  end if;
  select min(i.since) into v_first from alerts._items(v_channel) i;
  if v_first is not null then
    if alerts._is_recent(v_first, p_group_window) or alerts._is_recent(v_channel.last_notice_at, v_channel.gap) then
      return null;
    end if;
  elsif p_digest_every is null
     or alerts._is_recent(coalesce(v_channel.last_digest_at, v_channel.added_at), p_digest_every) then
    return null;
  else
    v_kind := 'digest';
    update alerts.channel c set last_digest_at = v_now where c.name = p_channel;
  end if;
  select coalesce(jsonb_agg(jsonb_build_object(
           'what', i.what, 'key', a.key, 'room', a.room, 'severity', a.severity, 'title', a.title, 'body', a.body,
           'count', a.count, 'raised_at', a.raised_at, 'last_at', a.last_at, 'cleared_at', a.cleared_at)
           order by i.what = 'cleared', alerts._rank(a.severity) desc, a.id), '[]')
  into v_items
  from (select i.alert_id, i.what from alerts._items(v_channel) i where v_kind = 'alert'
        union all
        select o.id, 'open' from alerts.alert o
        where v_kind = 'digest' and o.cleared_at is null and o.acked_at is null and not alerts._is_muted(o.key)
          and alerts._rank(o.severity) >= alerts._rank(v_channel.least_severity)) i
  join alerts.alert a on a.id = i.alert_id;
  if v_items = '[]' and not (v_kind = 'digest' and p_is_heartbeat) then
    return null;
  end if;
  insert into alerts.notice (channel, kind, items, created_at, due_at)
  values (p_channel, v_kind, v_items, v_now, v_now) returning id into v_notice;
  if v_kind = 'alert' then
    perform alerts._record_items(v_channel, v_notice);
    update alerts.channel c set last_notice_at = v_now,
      gap = case when alerts._is_recent(c.last_notice_at, p_quiet_window * 2) then least(c.gap * 8, p_quiet_window)
            else p_group_window end
    where c.name = p_channel;
  end if;
  return v_notice;
end $$;

-- Record the items of the notice, so that each is sent once.
create or replace function alerts._record_items(p_channel alerts.channel, p_notice bigint) returns void
language sql volatile set search_path from current as $$
  with items as materialized (select i.* from alerts._items(p_channel) i)
  , cleared as (
    update alerts.told t set cleared_by = p_notice
    from items i where i.what = 'cleared' and t.alert_id = i.alert_id and t.channel = p_channel.name)
  insert into alerts.told as t (alert_id, channel, severity)
  select i.alert_id, p_channel.name, a.severity
  from items i join alerts.alert a on a.id = i.alert_id where i.what <> 'cleared'
  on conflict (alert_id, channel) do update set severity = excluded.severity
$$;
