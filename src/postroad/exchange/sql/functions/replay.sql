-- The messages that a database lost by a restore: those of the processes committed after marker p_from, in order.
create or replace function exchange.lost_messages(p_database text, p_from bigint)
returns table (number bigint, process_id text, marker_seq bigint, id text, sender text, sequence bigint, file_name text, finished_at timestamptz)
language sql stable set search_path from current as $$
  select m.number, p.id, p.marker_seq, m.id, m.sender, m.sequence, m.file_name, m.finished_at
  from exchange.process p
  join exchange.process_file f on f.process_id = p.id and not f.is_refused
  join exchange.message m on m.number = f.number
  where p.database_id = p_database and p.outcome = 'COMMITTED' and p.has_marker and p.marker_seq > p_from
    and m.state = 'done' and m.process_id = p.id
  order by m.number
$$;

-- Queues these messages again and moves their files from Log back to Messages.  A message without a file in Log is parked, with an alert,
-- until its file is restored.  The database continues from marker p_from.  Returns the number of queued messages.
--   p_from  null: the marker that the ERP reported
-- Errors: MX021 unknown database, MX050 no restore was reported and p_from is not given.
create or replace function exchange.replay(p_epoch bigint, p_database text, p_from bigint, p_is_skipped boolean) returns bigint
language plpgsql volatile set search_path from current as $$
declare
  v_database exchange.database;
  v_from     bigint;
  v_count    bigint := 0;
  v_lost     bigint[];
begin
  perform exchange._enter(p_epoch);
  perform exchange.find_database(p_database, false);
  select d.* into v_database from exchange.database d where d.id = p_database for update;
  -- A fresh report may still be corrected.
  v_from := coalesce(p_from, case when exchange.restored_in(p_database) = 0 then v_database.restored_seq end);
  if v_from is null then
    raise exception 'database % has not been seen to be restored', quote_literal(p_database)
      using errcode = 'MX050', hint = 'To replay them anyway, specify the first marker: --from SEQ';
  end if;
  if not p_is_skipped then
    v_lost := array(select l.number from exchange.lost_messages(p_database, v_from) l);
    update exchange.message m
    set state = 'queued', folder = 'Messages', failures = 0, expiries = 0, finished_at = null, process_id = null
    where m.number = any (v_lost) and m.folder = 'Log';
    get diagnostics v_count = row_count;
    update exchange.message m
    set state = 'parked', is_parked_by_file = true, failures = 0, expiries = 0, process_id = null,
        error = 'its database has lost it, and ' || coalesce(m.error, 'its file is not in Log any more')
    where m.number = any (v_lost) and m.state = 'done';
    perform exchange._alert_corrupt(m, m.folder is not null) from exchange.message m
    where m.number = any (v_lost) and m.state = 'parked';
  end if;
  update exchange.database d
  set committed_seq = v_from, restored_seq = null, restored_at = null, is_restore_told = false where d.id = p_database;
  perform alerts.clear('exchange/restored/' || p_database);
  return v_count;
end $$;
