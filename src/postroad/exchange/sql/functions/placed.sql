-- Files were moved, by these versions of their plans.  A message that has been sent elsewhere meanwhile stays pending.  Processes in CLEANUP or FAILED all of whose files are in place are DONE.
create or replace function exchange.placed(p_epoch bigint, p_numbers bigint[], p_versions bigint[], p_processes text[]) returns void
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_process exchange.process;
begin
  perform exchange._enter(p_epoch);
  delete from exchange.move v
  using unnest(p_numbers, p_versions) u (number, version)
  where v.number = u.number and v.version = u.version;
  for v_process in
    select p.* from exchange.process p
    where p.id = any (p_processes) and p.state in ('CLEANUP', 'FAILED')
    order by p.id for update
  loop
    continue when exists (
      select from exchange.message m join exchange.move v on v.number = m.number where m.process_id = v_process.id);
    perform alerts.clear('exchange/failed/' || v_process.id) where v_process.tries > 0;
    update exchange.process p set state = 'DONE', ended_at = exchange.now(), error = null
    where p.id = v_process.id returning p.* into v_process;
    perform exchange._note(v_process, null, null);
  end loop;
end $$;

-- The files of a decided process could not be moved: FAILED, tried again, the administrator told.
create or replace function exchange.not_placed(p_epoch bigint, p_process text, p_reason text) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_process exchange.process;
begin
  perform exchange._enter(p_epoch);
  update exchange.process p set state = 'FAILED', tries = p.tries + 1, error = p_reason
  where p.id = p_process and p.state in ('CLEANUP', 'FAILED') returning p.* into v_process;
  if v_process.tries = 1 then
    perform exchange._note(v_process, null, p_reason);
    perform alerts.raise(
      'exchange/failed/' || p_process, 'exchange', 'error', format('the files of process %s cannot be moved', p_process),
      format('%s. The outcome is known and safe; moving is tried again by itself.', p_reason));
  end if;
end $$;

-- What is pending: the recorded plan, oldest first.  p_processes, p_numbers null: everything.
create or replace function exchange.pending(p_processes text[], p_numbers bigint[], p_after bigint, p_limit integer) returns setof jsonb
language sql stable set search_path from current as $$
  select exchange._move(m, v)
  from exchange.move v join exchange.message m on m.number = v.number
  where v.number > p_after and (p_processes is null or m.process_id = any (p_processes))
    and (p_numbers is null or v.number = any (p_numbers))
  order by v.number limit p_limit
$$;

-- A file is not what was taken in, or is not there: the message is parked, whoever held it goes on without it.
--   p_is_there  whether something lies under its name, to be put aside in Error
-- A message that was never acknowledged (its file never got its name) is forgotten: its sender sends it again.
create or replace function exchange.quarantine(
  p_epoch bigint, p_number bigint, p_version bigint, p_reason text, p_is_there boolean)
returns text
language plpgsql volatile set search_path from current as $$
declare
  v_message exchange.message;
begin
  perform exchange._enter(p_epoch);
  select m.* into v_message from exchange.message m where m.number = p_number for update;
  if v_message.number is null or v_message.state in ('discarded') then return 'gone'; end if;
  -- Something was decided since the caller looked: what it missed may lie where it belongs now.
  if not p_is_there and exists (select from exchange.move v where v.number = p_number and v.version > p_version) then return 'stale'; end if;
  if v_message.state = 'queued' and not p_is_there and exists (
      select from exchange.move v where v.number = p_number and v.temporary is not null) then
    delete from exchange.move v where v.number = p_number;
    delete from exchange.message m where m.number = p_number;
    return 'forgotten';
  end if;
  update exchange.process_file f set is_refused = true, error = p_reason
  where f.number = p_number and f.process_id = v_message.process_id and v_message.state = 'leased';
  update exchange.message m
  set state = 'parked', folder = 'Error', process_id = null, error = p_reason, finished_at = exchange.now()
  where m.number = p_number;
  if not p_is_there then
    delete from exchange.move v where v.number = p_number;
  end if;
  perform alerts.raise(
    format('exchange/corrupt/%s', p_number), 'exchange', 'critical',
    format('the file %s of database %s is not what was taken in', v_message.file_name, v_message.database_id),
    format('%s. It is in quarantine in the folder Error. Put the right file there, then: postroad exchange requeue %s --sender %s',
      p_reason, v_message.id, v_message.sender));
  return 'parked';
end $$;
