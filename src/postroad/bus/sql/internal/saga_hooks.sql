-- Records what happens to the messages of sagas.  Each event writes a note, and the transaction processes its notes when it commits: a
-- handler that runs for minutes blocks neither the other steps nor a cancel.
-- Locks: the step's row, until the end of the transaction.  If it cannot be locked, another transaction handles the step.

-- Called by mbus._done: messages were consumed, acked or taken.
create or replace function mbus._saga_done(p_queue_id integer, p_consumer_id integer, p_numbers bigint[]) returns void
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_saga mbus.saga;
begin
  -- Ordering without sagas has no extra cost.
  if cardinality(p_numbers) = 0 or not exists (select from mbus.saga) then return; end if;
  with done as (
    update mbus.saga_step s
    set state = case when s.is_aborted then s.state else 'done' end, done_by = pg_current_xact_id(),
        attempts = s.attempts + 1, done_at = mbus.now()
    where s.do_queue_id = p_queue_id and s.do_number = any (p_numbers) and s.state in ('waiting', 'failed')
      and not s.is_settled and (p_consumer_id is null or s.do_consumer_id = p_consumer_id)
    returning s.saga_id, s.name)
  insert into mbus.saga_note (saga_id, kind, step)
  select d.saga_id, case when p_consumer_id is null then 'taken' else 'done' end, d.name from done d;
  with undone as (
    update mbus.saga_step s
    set state = case when s.state in ('compensating', 'parked') then 'compensated' else s.state end,
        undo_attempts = s.undo_attempts + 1, undone_at = mbus.now()
    where s.undo_queue_id = p_queue_id and s.undo_number = any (p_numbers) and s.undone_at is null
      and not s.is_undo_lost and not s.is_settled and (p_consumer_id is null or s.undo_consumer_id = p_consumer_id)
    returning s.saga_id, s.name)
  insert into mbus.saga_note (saga_id, kind, step) select u.saga_id, 'undone', u.name from undone u;
  for v_saga in
    select * from mbus.saga g
    where g.queue_id = p_queue_id and g.bung_number = any (p_numbers) and g.cancelled_at is null and g.finished_at is null
  loop
    perform mbus._check_saga_right(v_saga);
    perform mbus._check_pivot(v_saga);
    insert into mbus.saga_note (saga_id, kind, error) values (v_saga.id, 'bung', 'the bung was taken');
  end loop;
end $$;

-- Called by mbus._posted: the message returns under its iid, in the transaction that took it.  Then the step must
-- be done again, and its notes are deleted.
create or replace function mbus._saga_posted(p_queue_id integer, p_number bigint) returns void
language sql set search_path from current set enable_seqscan = off as $$
  with forgotten as (
    delete from mbus.saga_note n using mbus.saga_step s
    where n.written_by = pg_current_xact_id() and s.saga_id = n.saga_id and s.name = n.step
      and (n.kind in ('done', 'taken') and s.do_queue_id = p_queue_id and s.do_number = p_number
           or n.kind = 'undone' and s.undo_queue_id = p_queue_id and s.undo_number = p_number)
    returning n.saga_id, n.step, n.kind)
  update mbus.saga_step s
  set state = case when f.kind <> 'undone' and s.state = 'done' then 'waiting'
                   when f.kind = 'undone' and s.state = 'compensated' then 'compensating' else s.state end,
      done_by = case when f.kind = 'undone' then s.done_by end,
      done_at = case when f.kind = 'undone' then s.done_at end,
      undone_at = case when f.kind <> 'undone' then s.undone_at end
  from forgotten f where s.saga_id = f.saga_id and s.name = f.step;
$$;

-- Called by mbus.take of a message that does not exist.  A handler that is too late for the bung intended to abort as well.
create or replace function mbus._saga_missed(p_queue_id integer, p_number bigint) returns void
language sql set search_path from current set enable_seqscan = off as $$
  insert into mbus.saga_note (saga_id, kind, error)
  select g.id, 'bung', 'the bung was taken' from mbus.saga g
  where g.queue_id = p_queue_id and g.bung_number = p_number and g.cancelled_at is not null and g.finished_at is null
$$;

-- Called for messages of sagas that died, or (p_is_lost) disappeared without being handled, for one consumer or (null) for all.  A
-- forward step that died ends the saga; a compensation is parked.
create or replace function mbus._saga_failed(
  p_queue_id integer, p_consumer_id integer, p_numbers bigint[], p_error text, p_is_lost boolean) returns void
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
begin
  with failed as (
    update mbus.saga_step s set state = 'failed', is_aborted = s.is_aborted or p_is_lost, error = p_error
    where s.do_queue_id = p_queue_id and s.do_number = any (p_numbers) and not s.is_settled
      and (s.state = 'waiting' or s.state = 'failed' and not p_is_lost) and (p_consumer_id is null or s.do_consumer_id = p_consumer_id)
    returning s.saga_id, s.name)
  insert into mbus.saga_note (saga_id, kind, step, error) select f.saga_id, 'died', f.name, p_error from failed f;
  with parked as (
    update mbus.saga_step s
    set state = case s.state when 'compensating' then 'parked' else s.state end, is_undo_lost = s.is_undo_lost or p_is_lost,
        undo_error = p_error
    where s.undo_queue_id = p_queue_id and s.undo_number = any (p_numbers) and s.undone_at is null and not s.is_settled
      and (s.state = 'compensating' or p_is_lost) and (p_consumer_id is null or s.undo_consumer_id = p_consumer_id)
    returning s.saga_id, s.name, s.state)
  insert into mbus.saga_note (saga_id, kind, step, error)
  select p.saga_id, 'died', p.name, p_error from parked p where p.state = 'parked';
end $$;

-- Called by mbus._give_back when an attempt has failed.  The next attempt may succeed.
create or replace function mbus._saga_tried(
  p_queue_id integer, p_consumer_id integer, p_number bigint, p_attempts integer, p_error text) returns void
language sql set search_path from current set enable_seqscan = off as $$
  update mbus.saga_step s set attempts = p_attempts, error = coalesce(p_error, s.error), is_aborted = false
  where s.do_queue_id = p_queue_id and s.do_number = p_number and s.do_consumer_id = p_consumer_id;
  update mbus.saga_step s set undo_attempts = p_attempts, undo_error = coalesce(p_error, s.undo_error)
  where s.undo_queue_id = p_queue_id and s.undo_number = p_number and s.undo_consumer_id = p_consumer_id;
$$;

create or replace function mbus._saga_died() returns trigger
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._saga_failed(new.queue_id, new.consumer_id, array[new.number], new.error, false);
  return null;
end $$;

-- A saga may be rolled back by users who may start or do one of its steps.  Raises MB013.
create or replace function mbus._check_saga_right(p_saga mbus.saga) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  if not exists (
    select from mbus.saga_step s
    join mbus.queue q on q.id = s.do_queue_id
    join mbus.consumer c on c.id = s.do_consumer_id
    join pg_proc p on p.pronamespace = 'mbus'::regnamespace and p.proname = 'post_' || q.name
    where s.saga_id = p_saga.id
      and (mbus._may_consume(q, c.name) or has_function_privilege(session_user, p.oid, 'execute'))) then
    raise exception 'user "%" may not roll back saga %', session_user, p_saga.id
      using errcode = 'MB013', hint = 'Grant the role to post to or to consume from a queue of one of its steps.';
  end if;
end $$;

-- Raises MB022 if the pivot has been passed.
create or replace function mbus._check_pivot(p_saga mbus.saga) returns void
language plpgsql set search_path from current as $$
begin
  if mbus._is_past_pivot(p_saga) then
    raise exception 'saga % is past its pivot "%"', p_saga.id, p_saga.pivot
      using errcode = 'MB022', hint = 'It can only be completed. Retry the step until it succeeds.';
  end if;
end $$;

create or replace function mbus._is_past_pivot(p_saga mbus.saga) returns boolean
language sql stable set search_path from current as $$
  select exists (select from mbus.saga_step s where s.saga_id = p_saga.id and s.name = p_saga.pivot and s.state = 'done')
$$;

-- Processes the notes of this transaction, at its commit or earlier on request.
-- Locks: the rows of the sagas, in the order of their ids.
create or replace function mbus._saga_work() returns void
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_sagas bigint[];
  v_note  record;
  v_saga  mbus.saga;
begin
  if not exists (select from mbus.saga_note n where n.written_by = pg_current_xact_id()) then return; end if;
  v_sagas := array(select g.id from mbus.saga g
                   where g.id in (select n.saga_id from mbus.saga_note n where n.written_by = pg_current_xact_id())
                   order by g.id for no key update);
  for v_note in
    with mine as (delete from mbus.saga_note n where n.written_by = pg_current_xact_id() returning n.*)
    select m.saga_id, bool_or(m.kind = 'bung') as is_bung, bool_or(m.kind in ('bung', 'aborted')) as is_asked,
           bool_or(m.kind = 'died') as has_died,
           array_agg(m.step) filter (where m.kind = 'done') as done,
           array_agg(m.step) filter (where m.kind = 'taken') as taken,
           (array_agg(m.error order by m.kind, m.id) filter (where m.kind in ('aborted', 'bung', 'died'))) [1] as error,
           (array_agg(m.step order by m.kind, m.id) filter (where m.kind in ('aborted', 'died'))) [1] as culprit
    from mine m group by m.saga_id order by m.saga_id
  loop
    continue when v_note.saga_id <> all (v_sagas);
    if v_note.is_bung then
      v_note.culprit := coalesce(v_note.culprit, mbus._saga_blame(v_note.saga_id, v_note.done, v_note.taken));
    end if;
    select * into v_saga from mbus.saga g where g.id = v_note.saga_id;
    if (v_note.is_asked or v_note.has_died) and v_saga.cancelled_at is null and v_saga.finished_at is null then
      if v_note.is_asked then perform mbus._check_pivot(v_saga); end if;
      if not mbus._is_past_pivot(v_saga) then
        perform mbus._saga_cancel(v_saga, concat_ws(': ', v_note.culprit, v_note.error));
        continue;
      end if;
    end if;
    perform mbus._saga_advance(v_saga, false);
  end loop;
end $$;

create or replace function mbus._saga_work_now() returns trigger
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._saga_work();
  return null;
end $$;

-- Only once: it locks the table until the upgrade ends, and dead messages and sagas would wait for so long.
do $$
begin
  if not exists (select from pg_trigger where tgrelid = 'mbus.saga_note'::regclass and tgname = 'saga_is_worked_off') then
    create trigger saga_message_died after insert on mbus.dmq
    for each row when (new.headers ? 'saga') execute function mbus._saga_died();
    create constraint trigger saga_is_worked_off after insert on mbus.saga_note
    deferrable initially deferred for each row execute function mbus._saga_work_now();
  end if;
end $$;

-- A handler that takes the bung reports that its step has failed.  If the transaction handled several steps (a batch), all count as done,
-- because an unnecessary compensation is better than a missing one.  Messages that it removed by iid, as listed in the bung, never ran.
create or replace function mbus._saga_blame(p_saga_id bigint, p_done text[], p_taken text[]) returns text
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  update mbus.saga_step s set state = 'skipped', done_at = null, attempts = s.attempts - 1
  where s.saga_id = p_saga_id and s.name = any (p_taken) and s.state = 'done';
  if cardinality(p_done) = 1 then
    update mbus.saga_step s set state = 'failed', is_aborted = true, done_at = null, error = 'took the bung'
    where s.saga_id = p_saga_id and s.name = p_done[1] and s.state = 'done';
    return p_done[1];
  end if;
  return null;
end $$;
