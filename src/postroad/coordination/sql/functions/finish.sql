-- Handles a message of the Coordinator at the Writer: decisions about single events, and the position up to which everything is finished.
-- Idempotent; states only advance.  Returns how many events changed.  Raises PC010.
create or replace function coordination.finish(p_message jsonb) returns integer
language plpgsql security definer set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path from current as $$
declare
  v_now    timestamptz := coordination.now();
  v_count  integer := 0;
  v_other  integer;
  v_cancel record;
  v_restored boolean := false;
begin
  perform coordination._require('writer');
  perform coordination._lock(2);
  -- By arrays, and not by "FinishedAt" is null: the index of unfinished events has entries of finished ones until the next vacuum.
  with done as (
    update coordination."AppEvent" e set "AppEventStatusId" = coordination._status('Committed'), "FinishedAt" = v_now
    where e."Id" = any (array(
        select d.id from jsonb_to_recordset(p_message -> 'decisions') d (id bigint, outcome text) where d.outcome = 'commit'))
      and e."AppEventStatusId" = coordination._status('Saving')
    returning e."Id")
  insert into coordination.history (event_id, states, at, by)
  select d."Id", '{Committing,Committed}', v_now, 'writer' from done d;
  get diagnostics v_count = row_count;
  update coordination."AppEvent" e set "AppEventStatusId" = coordination._status('Committed'), "FinishedAt" = v_now
  where e."Id" = any (array(select f.id::bigint from jsonb_array_elements_text(p_message -> 'finished') f (id)))
    and e."AppEventStatusId" = coordination._status('Saving') and e."Mode" = 'replicate';
  get diagnostics v_other = row_count;
  v_count := v_count + v_other;
  update coordination.acknowledged a set finished_to = (p_message ->> 'finished_to')::bigint
  where a.finished_to < (p_message ->> 'finished_to')::bigint;
  if p_message ->> 'kind' = 'retry' then
    return (select coalesce(bool_or(coordination._cancel(e."Id", e."Reason")), false)::integer
      from coordination."AppEvent" e where e."Id" = (p_message ->> 'id')::bigint and e."AppEventStatusId" = coordination._status('Canceling'));
  end if;
  -- In reverse order: the last event restores the state that the earlier ones left.
  for v_cancel in
    select d.id, d.reason from jsonb_to_recordset(p_message -> 'decisions') d (id bigint, outcome text, reason text)
    join coordination."AppEvent" e on e."Id" = d.id
    where d.outcome = 'cancel' order by e."Position" desc
  loop
    v_other := coordination._cancel(v_cancel.id, v_cancel.reason)::integer;
    v_count := v_count + v_other;
    v_restored := v_restored or v_other > 0;
  end loop;
  -- Retries rollbacks that were refused because of a change that has been undone now.
  for v_cancel in
    select e."Id" as id, e."Reason" as reason from coordination."AppEvent" e
    where v_restored and e."FinishedAt" is null and e."AppEventStatusId" = coordination._status('Canceling') order by e."Position" desc
  loop
    v_count := v_count + coordination._cancel(v_cancel.id, v_cancel.reason)::integer;
  end loop;
  return v_count;
end $$;
