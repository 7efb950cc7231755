-- Called periodically by the Coordinator: cancels events that have passed their deadline, and queries readers that are silent
-- while events wait for them.  Returns how many events were cancelled.  Raises PC010.
create or replace function coordination.watch(p_ask interval default '10 seconds', p_alarm interval default '5 minutes') returns integer
language plpgsql security definer set search_path from current as $$
declare
  v_now    timestamptz := coordination.now();
  v_count  integer := 0;
  v_reader coordination.reader;
begin
  perform coordination._require('coordinator');
  perform coordination._lock(3);
  select count(*), coordination._write_decisions(array_agg(l.id), array_agg('cancel'::text), array_agg(l.reason))::text
  into v_count from (
    select e."Id" as id, 'the deadline passed without a vote of ' || coalesce((
      select string_agg(r.name, ', ' order by r.name) from coordination.reader r
      where r.is_voter and r.finished_to < e."Position" and not exists (
        select from coordination.reader_event v where v.event_id = e."Id" and v.reader = r.name and v.vote is not null)), 'any reader') as reason
    from coordination."WriterEvent" e
    where e."FinishedAt" is null and e."Deadline" < v_now
      and not exists (select from coordination.decision d where d.event_id = e."Id")
    order by e."Position" limit 1000) l
  having count(*) > 0;
  for v_reader in
    update coordination.reader r set asked_at = v_now
    where greatest(r.heard_at, r.asked_at) < v_now - p_ask and exists (
      select from coordination."WriterEvent" e
      where e."FinishedAt" is null and e."Position" > r.finished_to and e."ReceivedAt" < v_now - p_ask)
    returning r.*
  loop
    perform mbus.post_co_decide(jsonb_build_object('version', 1, 'kind', 'ask', 'reader', v_reader.name));
    if v_reader.heard_at < v_now - p_alarm then
      perform alerts.raise('coordination.reader.' || v_reader.name, 'coordination', 'warning',
        format('reader %s is silent', v_reader.name),
        format('last report at %s; its events wait for it and are applied when it is back', v_reader.heard_at));
    end if;
  end loop;
  return coalesce(v_count, 0);
end $$;
