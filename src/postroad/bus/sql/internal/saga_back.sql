-- The rollback of a saga: forward messages are removed, compensations of done steps released, last steps first.
-- Called with the saga's row locked; waits for no other lock.

create or replace function mbus._saga_back(p_saga mbus.saga, p_is_check boolean) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_step    mbus.saga_step;
  v_is_open boolean;
begin
  v_is_open := not mbus._saga_drop(p_saga.queue_id, p_saga.bung_number);
  if not v_is_open then
    perform mbus._done(p_saga.queue_id, null, array[p_saga.bung_number]);
  end if;
  for v_step in
    select * from mbus.saga_step s where s.saga_id = p_saga.id and not s.is_settled
    order by s.position desc for no key update skip locked
  loop
    if v_step.state in ('waiting', 'failed', 'skipped') then
      v_step := mbus._saga_withdraw(v_step);
    elsif v_step.state = 'compensating' and p_is_check
          and mbus._saga_find(v_step.undo_queue_id, v_step.undo_consumer_id, v_step.undo_number) = 'gone' then
      v_step.state := 'compensated';
    end if;
    if v_step.state = 'done' then
      v_step := mbus._saga_undo(p_saga, v_step);
    end if;
    if v_step.state = 'compensated' then
      v_step.is_settled := true;
      v_step.undone_at := coalesce(v_step.undone_at, mbus.now());
    end if;
    update mbus.saga_step s
    set state = v_step.state, is_settled = v_step.is_settled, undo_error = v_step.undo_error, undone_at = v_step.undone_at,
        done_at = v_step.done_at
    where s.saga_id = p_saga.id and s.name = v_step.name;
    if v_step.is_settled then
      -- Messages that wait for its messages are released.
      perform mbus._done(m.queue_id, null, array[m.number])
      from (values (v_step.do_queue_id, v_step.do_number), (v_step.undo_queue_id, v_step.undo_number)) m(queue_id, number)
      where m.number is not null;
    end if;
  end loop;
  if not v_is_open and not exists (select from mbus.saga_step s where s.saga_id = p_saga.id and not s.is_settled) then
    perform mbus._saga_finish(p_saga, 'compensated');
    return;
  end if;
  v_is_open := v_is_open or exists (select from mbus.saga_step s where s.saga_id = p_saga.id and not s.is_settled
                                      and s.state in ('waiting', 'failed', 'skipped'));
  update mbus.saga g
  set state = case when exists (select from mbus.saga_step s where s.saga_id = g.id and s.state = 'parked')
                   then 'stuck' else 'compensating' end,
      check_at = mbus.now() + case when v_is_open then interval '1 second' else interval '1 minute' end
  where g.id = p_saga.id;
end $$;

-- Rolls back a step that is not done: its message and its compensation are removed.
create or replace function mbus._saga_withdraw(p_step mbus.saga_step) returns mbus.saga_step
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_fate text;
begin
  -- Steps that wait for this one are withdrawn first, because removing it would release them.
  if exists (select from mbus.saga_step s where s.saga_id = p_step.saga_id and p_step.name = any (s.after)
               and s.state = 'waiting' and not s.is_settled) then
    return p_step;
  end if;
  v_fate := mbus._saga_remove(p_step.do_queue_id, p_step.do_consumer_id, p_step.do_number);
  if v_fate = 'held' then return p_step; end if;
  if v_fate = 'gone' and p_step.state = 'waiting' then
    -- The message was handled by a session that still ran functions without sagas.
    p_step.state := 'done';
    p_step.done_at := mbus.now();
    return p_step;
  end if;
  if p_step.state = 'waiting' then p_step.state := 'skipped'; end if;
  p_step.is_settled := p_step.undo_number is null or mbus._saga_drop(p_step.undo_queue_id, p_step.undo_number);
  return p_step;
end $$;

-- Rolls back a step that is done: its compensation is released when all later steps are settled.
create or replace function mbus._saga_undo(p_saga mbus.saga, p_step mbus.saga_step) returns mbus.saga_step
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  if p_step.undo_number is null then
    p_step.is_settled := true;
    return p_step;
  end if;
  if not p_saga.is_parallel
     and exists (select from mbus.saga_step s where s.saga_id = p_saga.id and p_step.name = any (s.after) and not s.is_settled) then
    return p_step;
  end if;
  if not p_step.is_undo_lost and mbus._saga_open(p_saga, p_step.undo_queue_id, p_step.undo_number) then
    p_step.state := 'compensating';
  elsif not p_step.is_undo_lost and p_step.undone_at is not null then
    p_step.state := 'compensated';    -- an operator took it
  else
    p_step.state := 'parked';
    p_step.undo_error := coalesce(p_step.undo_error, 'its message is lost');
  end if;
  return p_step;
end $$;

-- Called by maintenance: processes deadlines, and messages that other transactions held.
create or replace function mbus._saga_check(p_limit integer) returns bigint
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_saga  mbus.saga;
  v_count bigint := 0;
begin
  -- The notes of this transaction come first: their locks are waited for, in order, so no lock may be held yet.
  perform mbus._saga_work();
  for v_saga in
    select * from mbus.saga g where g.check_at <= mbus.now() order by g.check_at limit p_limit for no key update skip locked
  loop
    if v_saga.cancelled_at is null and v_saga.deadline <= mbus.now() and not mbus._is_past_pivot(v_saga)
       and exists (select from mbus.saga_step s where s.saga_id = v_saga.id and s.state <> 'done') then
      perform mbus._saga_cancel(v_saga, 'the deadline passed');
    else
      perform mbus._saga_advance(v_saga, true);
    end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Finished sagas are kept for 30 days.
create or replace function mbus._forget_sagas() returns void
language sql set search_path from current as $$
  delete from mbus.saga g where g.id in (
    select f.id from mbus.saga f where f.finished_at < mbus.now() - interval '30 days' limit 1000 for update skip locked)
$$;
