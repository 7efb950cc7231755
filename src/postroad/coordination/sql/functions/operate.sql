-- Cancels an event before it is committed anywhere: readers drop it, the Writer restores.
-- Raises PC005 for an unknown event, PC013 when a reader has committed it or the commit was decided, PC010.
create or replace function coordination.cancel(p_event bigint, p_reason text default 'cancelled by an operator') returns void
language plpgsql security definer set search_path from current as $$
declare
  v_event  coordination."WriterEvent";
  v_reader text;
begin
  perform coordination._require('coordinator');
  perform coordination._lock(3);
  select * into v_event from coordination."WriterEvent" e where e."Id" = p_event;
  perform coordination._refuse_if(not found, 'PC005', format('there is no event %s', p_event),
    'list them with: postroad coordination events');
  select r.name into v_reader from coordination.reader r
  where r.finished_to >= v_event."Position" or exists (
    select from coordination.reader_event x where x.event_id = p_event and x.reader = r.name and x.state = 'Committed')
  order by r.name limit 1;
  perform coordination._refuse_if(exists (select from coordination.decision d where d.event_id = p_event and d.outcome = 'commit')
    or v_event."AppEventStatusId" = coordination._status('Committed')
    or v_reader is not null and not exists (select from coordination.decision d where d.event_id = p_event),
    'PC013', format('event %s is committed%s', p_event, coalesce(' at reader ' || v_reader, '')), 'undo it by a new change at the Writer');
  perform coordination._write_decisions(array[p_event], array['cancel'], array[p_reason]);
end $$;

-- Tries a parked event again at its readers, or a refused rollback at the Writer.  Raises PC005 for an unknown event, PC010.
create or replace function coordination.retry(p_event bigint, p_reader text default null) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._require('coordinator');
  perform coordination._refuse_if(not exists (select from coordination."WriterEvent" e where e."Id" = p_event),
    'PC005', format('there is no event %s', p_event), 'list them with: postroad coordination events');
  perform mbus.post_co_decide(jsonb_build_object('version', 1, 'kind', 'retry', 'id', p_event, 'reader', p_reader),
    mbus.trace_headers());
  perform mbus.notify(array['co_decide']);
end $$;

-- Drops a parked event at one reader: its changes are missing there until later changes or a snapshot replace the rows.
-- Raises PC005 for an event that is not parked at the reader, PC010.
create or replace function coordination.skip(p_event bigint, p_reader text) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._require('coordinator');
  perform coordination._refuse_if(not exists (
    select from coordination.reader_event r where r.event_id = p_event and r.reader = p_reader and r.is_parked),
    'PC005', format('event %s is not parked at reader %s', p_event, left(p_reader, 80)),
    'only a parked event can be skipped; show it with: postroad coordination show ' || p_event);
  perform mbus.post_co_decide(jsonb_build_object('version', 1, 'kind', 'skip', 'id', p_event, 'reader', p_reader),
    mbus.trace_headers());
  perform mbus.notify(array['co_decide']);
end $$;

-- Sets whether a reader votes.  One that does not vote blocks no decision, and catches up later.  Raises PC008 for an unknown reader,
-- PC010.
create or replace function coordination.set_voter(p_reader text, p_is_voter boolean) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._require('coordinator');
  perform coordination._lock(3);
  update coordination.reader r set is_voter = p_is_voter where r.name = p_reader;
  perform coordination._refuse_if(not found, 'PC008', format('there is no reader %s', left(p_reader, 80)), 'see coordination.readers');
  perform coordination._decide(array(
    select e."Id" from coordination."WriterEvent" e where e."FinishedAt" is null and e."Mode" = 'two-phase'));
end $$;

-- Removes a reader: nothing waits for it from now on; if it returns, it must take a snapshot.  Raises PC008 for an unknown reader, PC010.
create or replace function coordination.remove_reader(p_reader text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_low bigint;
begin
  perform coordination._require('coordinator');
  perform coordination._lock(3);
  v_low := coordination._low();
  insert into coordination.removed_reader as x (name, generation)
  select r.name, r.generation from coordination.reader r where r.name = p_reader
  on conflict (name) do update set generation = excluded.generation, at = excluded.at;
  delete from coordination.reader r where r.name = p_reader;
  perform coordination._refuse_if(not found, 'PC008', format('there is no reader %s', left(p_reader, 80)), 'see coordination.readers');
  perform alerts.clear('coordination.reader.' || p_reader);
  perform coordination._decide(array(
    select e."Id" from coordination."WriterEvent" e where e."FinishedAt" is null and e."Mode" = 'two-phase'));
  perform coordination._conclude(v_low);
end $$;
