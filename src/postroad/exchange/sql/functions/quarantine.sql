-- A file is changed or missing.  What happens depends on the state of its message:
--   queued, deferred, waiting   parked: not handed out until its file is right again
--   leased, process STARTED     parked; p_is_new: it was not handed out yet, and the process continues without it, else the
--                               process is cancelled, because its owner may have read the file
--   leased, unknown, prepared   of a process that may have committed: the outcome decides, and it is parked only if there is
--                               still something to do
--   uploaded                    discarded: it is to be uploaded again
--   done                        stays done: handing it out again would do it twice
--   p_folder    where the caller searched; null: the caller follows a plan, of p_version
--   p_is_there  whether the file exists and is to be moved to Error
-- Answers parked, kept (its state is unchanged), gone, or stale: something was decided since the caller read it.
-- Locks: the process's row, the message.  Errors: MX001.
create or replace function exchange.quarantine(
  p_epoch bigint, p_number bigint, p_version bigint, p_reason text, p_is_there boolean, p_folder text default null,
  p_is_new boolean default false)
returns text
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_owner   text;
  v_process exchange.process;
  v_message exchange.message;
  v_state   text;
begin
  select m.process_id into v_owner from exchange.message m where m.number = p_number;
  select p.* into v_process from exchange.process p where p.id = v_owner for update;
  select m.* into v_message from exchange.message m where m.number = p_number for update;
  if v_message.number is null or v_message.state = 'discarded' then return 'gone'; end if;
  if v_message.process_id is distinct from v_owner or p_folder is not null and p_folder is distinct from v_message.folder
     or not p_is_there and exists (select from exchange.move v where v.number = p_number and v.version > p_version) then
    return 'stale';
  end if;
  v_state := case
    when v_message.state = 'done' or v_message.state in ('leased', 'unknown', 'prepared') and v_process.state <> 'STARTED'
      then v_message.state
    when v_message.state = 'uploaded' then 'discarded'
    else 'parked' end;
  if v_message.state = 'leased' and v_process.state = 'STARTED' then
    if p_is_new then
      update exchange.process_file f set is_refused = true, error = p_reason where f.number = p_number and f.process_id = v_owner;
    else
      perform exchange._abort(v_process, v_server.served_seconds, 'CANCELLED', null, p_reason, null);
    end if;
  end if;
  update exchange.message m
  set state = v_state,
      -- The first reason for parking stays.
      error = case when m.state = 'parked' and not m.is_parked_by_file then concat_ws('; ', m.error, p_reason) else p_reason end,
      is_parked_by_file = v_state = 'parked' and (m.state <> 'parked' or m.is_parked_by_file),
      folder = case when p_is_there and v_state <> 'discarded' then 'Error' end,
      process_id = case when v_state = 'parked' and m.kind = 'message' then null else m.process_id end,
      finished_at = case when v_state in ('parked', 'discarded') then exchange.now() else m.finished_at end
  where m.number = p_number returning m.* into v_message;
  -- A missing file needs no move.
  delete from exchange.move v where v.number = p_number and not p_is_there;
  perform exchange._alert_corrupt(v_message, p_is_there) where v_state <> 'discarded';
  return case when v_state = 'parked' then 'parked' else 'kept' end;
end $$;

-- Raises the alert for a file in quarantine, with its consequences and what to do.
create or replace function exchange._alert_corrupt(p_message exchange.message, p_is_there boolean) returns void
language sql volatile set search_path from current as $$
  select alerts.raise(
    format('exchange/corrupt/%s', p_message.number), 'exchange', case p_message.state when 'done' then 'error' else 'critical' end,
    format('the file %s of database %s is not what was taken in', p_message.file_name, p_message.database_id),
    concat_ws(' ',
      p_message.error || '.',
      case when p_is_there and p_message.object is null then 'What was found is in quarantine in the folder Error.' end,
      case
        when p_message.state = 'done' then 'It was processed before, and is not handed out again.'
        when p_message.state = 'parked' then format(
          'Put the right file %s, then: postroad exchange requeue %s --sender %s',
          coalesce(
            'into the store as ' || (select case when exchange._is_objects(s.root_path) then s.root_path else s.second_root_path end || '/'
                                     from exchange.server s) || p_message.database_id || '/' || p_message.object,
            'into the folder Error'),
          p_message.id, p_message.sender)
        else 'Its process has it already: its outcome decides what happens to it, and an alert will report that.' end))
$$;
