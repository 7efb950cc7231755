-- Adds counts of mbus.tally that are a minute old to mbus.traffic, merges what is older than a day, and deletes what is
-- older than eight days.  p_is_deep: also records how many messages wait, for the 500 consumers with the latest traffic.
-- Called by one session at a time.
create or replace function mbus._record_traffic(p_now timestamptz, p_is_deep boolean) returns void
language plpgsql set search_path from current as $$
begin
  with gone as (
    delete from mbus.tally t where t.at <= p_now - interval '1 minute' returning t.*)
  insert into mbus.traffic as t (consumer_id, since, posted, consumed, rejected, died, expired)
  select g.consumer_id, date_trunc('minute', g.at),
         coalesce(sum(g.messages) filter (where g.kind = 'posted'), 0), coalesce(sum(g.messages) filter (where g.kind = 'consumed'), 0),
         coalesce(sum(g.messages) filter (where g.kind = 'rejected'), 0), coalesce(sum(g.messages) filter (where g.kind = 'died'), 0),
         coalesce(sum(g.messages) filter (where g.kind = 'expired'), 0)
  from gone g join mbus.consumer c on c.id = g.consumer_id
  group by 1, 2
  on conflict (consumer_id, since) do update
  set posted = t.posted + excluded.posted, consumed = t.consumed + excluded.consumed, rejected = t.rejected + excluded.rejected,
      died = t.died + excluded.died, expired = t.expired + excluded.expired;
  if not p_is_deep then return; end if;
  insert into mbus.traffic as t (consumer_id, since, waiting, dead)
  select c.id, date_trunc('minute', p_now), r.ready + w.delayed + w.blocked, w.dmq
  from (select m.consumer_id from mbus.traffic m where m.since > p_now - interval '10 minutes'
        group by 1 order by max(m.since) desc limit 500) m
  join mbus.consumer c on c.id = m.consumer_id join mbus.queue q on q.id = c.queue_id
  cross join lateral mbus._ready(q, c) r cross join lateral mbus._set_aside(q, c) w
  on conflict (consumer_id, since) do update set waiting = excluded.waiting, dead = excluded.dead;
  with gone as (
    delete from mbus.traffic t
    -- At most a day back: older counts are deleted with the rest.
    where t.since between p_now - interval '2 days' and p_now - interval '1 day' and extract(epoch from t.since)::bigint % 900 <> 0
    returning t.*)
  insert into mbus.traffic as t
  select g.consumer_id, date_bin('15 minutes', g.since, 'epoch'), sum(g.posted), sum(g.consumed), sum(g.rejected), sum(g.died),
         sum(g.expired), max(g.waiting), max(g.dead)
  from gone g join mbus.consumer c on c.id = g.consumer_id
  group by 1, 2
  on conflict (consumer_id, since) do update
  set posted = t.posted + excluded.posted, consumed = t.consumed + excluded.consumed, rejected = t.rejected + excluded.rejected,
      died = t.died + excluded.died, expired = t.expired + excluded.expired,
      waiting = greatest(t.waiting, excluded.waiting), dead = greatest(t.dead, excluded.dead);
  delete from mbus.traffic t where t.since < p_now - interval '8 days';
end $$;
