-- Takes the next notice that is due on one of these channels, or only p_notice, for p_lease; returns no row if there is none.  A lease that
-- ends later than p_lease from now was made before the clock was set back, and is ignored.
create or replace function alerts.take(
  p_sender text, p_channels text[], p_lease interval, p_backoff_max interval default '1 hour',
  p_notice bigint default null)
returns table (id bigint, channel text, kind text, items jsonb, attempt integer, token bigint, created_at timestamptz)
language plpgsql security definer set search_path from current as $$
declare
  v_notice alerts.notice;
  v_now    constant timestamptz := alerts.now();
begin
  select n.* into v_notice from alerts.notice n
  where n.channel = any (p_channels) and (n.id = p_notice or p_notice is null)
    and (n.state = 'waiting' and (n.due_at <= v_now or n.due_at > v_now + p_backoff_max * 2)
      or n.state = 'sending' and (n.leased_until <= v_now or n.leased_until > v_now + p_lease * 2))
  order by n.kind <> 'test', n.id limit 1 for update skip locked;
  if not found then
    return;
  end if;
  -- The former holder has died, and the outcome of its attempt is unknown.
  update alerts.attempt t set outcome = 'abandoned', ended_at = v_now
  where t.notice_id = v_notice.id and t.outcome is null;
  insert into alerts.attempt (notice_id, sender, started_at) values (v_notice.id, p_sender, v_now);
  return query
    update alerts.notice n set state = 'sending', attempts = n.attempts + 1, leased_until = v_now + p_lease,
      lease_token = nextval('alerts.lease_token')
    where n.id = v_notice.id
    returning n.id, n.channel, n.kind, n.items, n.attempts, n.lease_token, n.created_at;
end $$;

-- Records that a notice was sent, even by a sender that has lost its lease, and clears the alert about the channel's failure.
create or replace function alerts.sent(p_notice bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
  update alerts.notice n set state = 'sent', sent_at = alerts.now(), error = null, leased_until = null
  where n.id = p_notice and n.state <> 'sent';
  update alerts.attempt t set outcome = 'sent', ended_at = alerts.now()
  where t.notice_id = p_notice and t.id = (select max(l.id) from alerts.attempt l where l.notice_id = p_notice);
  perform alerts.clear(a.key) from alerts.notice n join alerts.alert a on a.key = 'alerts/channel/' || n.channel
  where n.id = p_notice and a.cleared_at is null;
end $$;

-- Records a failed attempt: retry after a delay that doubles up to p_backoff_max, with jitter; give up when the notice is
-- older than p_give_up_after.  Returns the state; null for a lost lease.  The third failure in a row raises an alert for the other
-- channels.
create or replace function alerts.failed(
  p_notice bigint, p_token bigint, p_error text, p_backoff interval, p_backoff_max interval, p_give_up_after interval)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_now    constant timestamptz := alerts.now();
  v_notice alerts.notice;
begin
  update alerts.notice n
  set state = case when n.kind = 'test' or n.created_at < v_now - p_give_up_after then 'given_up' else 'waiting' end,
      due_at = v_now + least(p_backoff * 2 ^ least(n.attempts - 1, 30), p_backoff_max) * (0.5 + random() / 2),
      error = left(p_error, 1000), leased_until = null
  where n.id = p_notice and n.lease_token = p_token and n.state = 'sending' returning n.* into v_notice;
  if found then
    update alerts.attempt t set outcome = 'failed', error = left(p_error, 1000), ended_at = v_now
    where t.notice_id = p_notice and t.outcome is null;
    -- The caller of a test gets the answer of the channel.
    if v_notice.kind <> 'test' and (v_notice.attempts = 3 or v_notice.state = 'given_up') then
      perform alerts.raise('alerts/channel/' || v_notice.channel, 'alerts', 'error',
        format('the channel %s does not take notices', v_notice.channel), p_error);
    end if;
  end if;
  return v_notice.state;
end $$;
