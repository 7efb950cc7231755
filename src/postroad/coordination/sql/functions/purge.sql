-- Removes finished events that are older than p_keep, at most p_limit of them, oldest first.  Returns how many.
-- At the Writer only events that every Reader has finished are removed, however old the others are.  At the Coordinator a decision stays
-- until the Writer has finished the event: without it a late message would be decided again.
create or replace function coordination.purge(p_keep interval default '7 days', p_limit integer default 10000) returns integer
language plpgsql security definer set search_path from current as $$
declare
  v_old   timestamptz := coordination.now() - p_keep;
  v_ids   bigint[];
  v_count integer := 0;
begin
  select array_agg(o."Id") into v_ids from (
    select e."Id" from coordination."AppEvent" e where e."FinishedAt" < v_old
      and (e."Position" <= (select a.finished_to from coordination.acknowledged a) or not exists (select from coordination.node n where n.role = 'writer'))
    order by e."FinishedAt" limit p_limit for update skip locked) o;
  if v_ids is not null then
    update coordination.acknowledged a set purged_to = greatest(a.purged_to, (
      select max(e."Position") from coordination."AppEvent" e where e."Id" = any (v_ids)));
    delete from coordination.payload p where p.event_id = any (v_ids);
    delete from coordination."AppEvent" e where e."Id" = any (v_ids);
    delete from coordination.history h where h.event_id = any (v_ids);
    v_count := cardinality(v_ids);
  end if;
  -- An entity that is no longer tracked stays as long as it has events.
  delete from coordination.entity n where n.role = 'untracked' and not exists (
    select from coordination."AppEvent" e where not e."IsPublished" or n.name = any (e."Entities"));
  select array_agg(o."Id") into v_ids from (
    select e."Id" from coordination."WriterEvent" e where e."FinishedAt" < v_old
      and (not exists (select from coordination.decision d where d.event_id = e."Id")
        or e."Position" <= (select a.writer_to from coordination.acknowledged a))
    order by e."FinishedAt" limit p_limit for update skip locked) o;
  if v_ids is not null then
    delete from coordination.reader_event r where r.event_id = any (v_ids);
    delete from coordination.decision d where d.event_id = any (v_ids);
    delete from coordination."WriterEvent" e where e."Id" = any (v_ids);
    delete from coordination.history h where h.event_id = any (v_ids);
    delete from coordination.reader_progress p where p.finished_to < (select min(e."Position") from coordination."WriterEvent" e);
    v_count := v_count + cardinality(v_ids);
  end if;
  return v_count;
end $$;
