-- Sagas: see docs/components/bus-sagas.md.

-- Starts a saga in the caller's transaction and returns its id.
--
-- steps is an array of {"name", "do", "undo", "after": [names], "data", "undo_data", "consumer"}: do and undo are the
-- queues of the step's message and of its compensation.  data is the default data of the steps.
-- A saga is rolled back by mbus.take of the bung, mbus.abort_saga, mbus.cancel_saga, a step that died, or at the deadline, but not after
-- the step named by pivot is done.  Compensations run in reverse order, or in parallel with is_parallel.
-- on_completed and on_compensated are queues that get the closing message.
-- Errors: MB001 queue, MB002 consumer, MB005 name, MB011 data, MB012 steps, deadline, pivot, MB013 role.
create or replace function mbus.create_saga(
  name text, steps jsonb, data jsonb default '{}', deadline timestamptz default null, pivot text default null,
  is_parallel boolean default false, on_completed text default null, on_compensated text default null) returns bigint
language plpgsql security definer set search_path from current set enable_seqscan = off as $$
declare
  v_saga    mbus.saga;
  v_service mbus.queue;
  v_step    record;
  v_is_new  boolean := false;
begin
  perform mbus._check_name('saga', create_saga.name);
  perform mbus._check_time('deadline', create_saga.deadline);
  if create_saga.deadline <= mbus.now() then
    perform mbus._refuse_saga('the deadline has passed already', 'Let it be in the future.');
  end if;
  if create_saga.pivot is not null
     and not coalesce(steps, '[]') @> jsonb_build_array(jsonb_build_object('name', create_saga.pivot)) then
    perform mbus._refuse_saga(format('the pivot "%s" is not a step', create_saga.pivot), 'Use the name of a step.');
  end if;
  perform mbus._check_post(q) from unnest(array[on_completed, on_compensated]) q where q is not null;
  v_service := mbus._saga_queue();
  insert into mbus.saga (name, is_parallel, pivot, deadline, check_at, queue_id, bung_number, gate_number, created_at)
  values (create_saga.name, coalesce(create_saga.is_parallel, false), create_saga.pivot, create_saga.deadline, create_saga.deadline,
          v_service.id, nextval(v_service.position), nextval(v_service.position), mbus.now())
  returning * into v_saga;
  for v_step in
    select t.*, q.id as do_id, nextval(q.position) as do_number, dc.id as do_consumer, not q.has_waiters as is_new,
           u.id as undo_id, case when u.id is not null then nextval(u.position) end as undo_number, uc.id as undo_consumer
    from mbus._saga_steps(steps) t
    join mbus.queue q on q.name = t.do_queue
    join mbus.consumer dc on dc.queue_id = q.id and dc.name = t.consumer
    left join mbus.queue u on u.name = t.undo_queue
    left join mbus.consumer uc on uc.queue_id = u.id and uc.name = t.consumer
    order by t.place
  loop
    insert into mbus.saga_step (saga_id, name, position, after, do_queue_id, do_consumer_id, do_number,
                                undo_queue_id, undo_consumer_id, undo_number)
    values (v_saga.id, v_step.step, v_step.place, v_step.after, v_step.do_id, v_step.do_consumer, v_step.do_number,
            v_step.undo_id, v_step.undo_consumer, v_step.undo_number);
    v_is_new := v_is_new or v_step.is_new;
  end loop;
  -- The closing messages of both directions have numbers in the given queues, otherwise in the service queue.
  update mbus.saga g
  set completed_queue_id = c.id, completed_number = nextval(c.position),
      compensated_queue_id = u.id, compensated_number = nextval(u.position)
  from mbus._queue(coalesce(on_completed, 'sagas')) c cross join mbus._queue(coalesce(on_compensated, 'sagas')) u
  where g.id = v_saga.id returning g.* into v_saga;
  perform mbus._saga_post_all(v_saga, steps, coalesce(create_saga.data, '{}'));
  -- Sessions that run older functions do not record the messages that they handle.
  if v_is_new then
    update mbus.saga g set check_at = least(g.check_at, mbus.now() + interval '2 seconds') where g.id = v_saga.id;
  end if;
  return v_saga.id;
end $$;

-- Posts every message of a new saga: the bung first, because the compensations wait for it.
create or replace function mbus._saga_post_all(p_saga mbus.saga, p_steps jsonb, p_data jsonb) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_step   record;
  v_all    text[];
  v_last   text[];
  v_undo   text[];
  v_bung   constant text := mbus._iid('sagas', p_saga.bung_number);
begin
  select array_agg(mbus._iid(q.name, s.do_number) order by s.position),
         array_agg(mbus._iid(q.name, s.do_number)) filter (where not exists (
           select from mbus.saga_step n where n.saga_id = s.saga_id and s.name = any (n.after))),
         coalesce(array_agg(mbus._iid(u.name, s.undo_number)) filter (where u.id is not null), '{}')
  into v_all, v_last, v_undo
  from mbus.saga_step s join mbus.queue q on q.id = s.do_queue_id left join mbus.queue u on u.id = s.undo_queue_id
  where s.saga_id = p_saga.id;
  perform mbus._saga_post(p_saga, mbus._queue('sagas'::text), p_saga.bung_number,
    jsonb_build_object('saga', p_saga.id::text, 'id_to_take', v_all::text), null, '{}', true);
  for v_step in
    select s.*, p_steps -> (s.position - 1) as given, q as do_queue, u as undo_queue,
           array(select mbus._iid(bq.name, b.do_number) from mbus.saga_step b join mbus.queue bq on bq.id = b.do_queue_id
                 where b.saga_id = s.saga_id and b.name = any (s.after)) as predecessors
    from mbus.saga_step s join mbus.queue q on q.id = s.do_queue_id left join mbus.queue u on u.id = s.undo_queue_id
    where s.saga_id = p_saga.id order by s.position
  loop
    perform mbus._saga_post(p_saga, v_step.do_queue, v_step.do_number, coalesce(v_step.given -> 'data', p_data),
                            v_step.name, v_step.predecessors, false);
    if v_step.undo_number is not null then
      perform mbus._saga_post(p_saga, v_step.undo_queue, v_step.undo_number,
        coalesce(v_step.given -> 'undo_data', v_step.given -> 'data', p_data), v_step.name, array[v_bung], true);
    end if;
  end loop;
  for v_step in
    select q as queue, m.number, m.after, case q.id when p_saga.queue_id then jsonb_build_object('saga', p_saga.id::text) else p_data end as data
    from (values (p_saga.completed_queue_id, p_saga.completed_number, v_last),
                 (p_saga.compensated_queue_id, p_saga.compensated_number, v_undo)) m(queue_id, number, after)
    join mbus.queue q on q.id = m.queue_id
  loop
    perform mbus._saga_post(p_saga, v_step.queue, v_step.number, v_step.data, null, v_step.after, true);
  end loop;
end $$;

-- Returns the saga and locks it.  Raises MB023.
create or replace function mbus._saga_locked(p_id bigint) returns mbus.saga
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_saga mbus.saga;
begin
  select * into v_saga from mbus.saga g where g.id = p_id for no key update;
  if not found then
    raise exception 'there is no saga %', coalesce(p_id::text, 'null') using errcode = 'MB023', hint = 'See the view mbus.saga_status.';
  end if;
  return v_saga;
end $$;

-- Rolls a saga back.  True if this call began the rollback, false if it had already begun.
-- Messages that other transactions hold are left to them: if these commit, the steps are compensated.
-- Errors: MB013 role, MB022 past the pivot, MB023 no such saga, MB024 completed.
create or replace function mbus.cancel_saga(id bigint, reason text default null) returns boolean
language plpgsql security definer set search_path from current set enable_seqscan = off as $$
declare
  v_saga mbus.saga;
begin
  perform mbus._check_isolation();
  v_saga := mbus._saga_locked(id);
  perform mbus._check_saga_right(v_saga);
  if v_saga.cancelled_at is not null then return false; end if;
  if v_saga.finished_at is not null then
    raise exception 'saga % is completed', v_saga.id using errcode = 'MB024', hint = 'Undo it with another saga.';
  end if;
  perform mbus._check_pivot(v_saga);
  perform mbus._saga_cancel(v_saga, coalesce(reason, 'cancelled'));
  return true;
end $$;

-- For the handler of a step that cannot be done and has had no effect.  The saga is rolled back when the handler's transaction commits, and
-- this step is not compensated.  iid is that of the step's message.
-- True if this began the rollback, false if it had already begun.
-- Errors: MB009 foreign iid, MB012 the step is already done, MB013 role, MB022 past the pivot, MB023 no message of a saga.
create or replace function mbus.abort_saga(iid text, reason text default null) returns boolean
language plpgsql security definer set search_path from current set enable_seqscan = off as $$
declare
  v_queue constant mbus.queue := mbus._queue(split_part(coalesce(iid, ''), '.', 1));
  v_step  mbus.saga_step;
  v_saga  mbus.saga;
begin
  select s.* into v_step from mbus.saga_step s
  where s.do_queue_id = v_queue.id and s.do_number = mbus._number(v_queue.name, iid) for no key update;
  if not found then
    raise exception 'message "%" is not a step of a saga', iid
      using errcode = 'MB023', hint = 'Pass the iid of the message that the handler got.';
  end if;
  perform mbus._check_consume(v_queue, (select c.name from mbus.consumer c where c.id = v_step.do_consumer_id));
  if v_step.state not in ('waiting', 'failed') and v_step.done_by is distinct from pg_current_xact_id_if_assigned() then
    perform mbus._refuse_saga(format('step "%s" is %s', v_step.name, v_step.state),
                              'Roll the saga back with mbus.cancel_saga.');
  end if;
  select * into v_saga from mbus.saga g where g.id = v_step.saga_id;
  if v_saga.cancelled_at is null then perform mbus._check_pivot(v_saga); end if;
  update mbus.saga_step s set state = 'failed', is_aborted = true, done_at = null, error = coalesce(reason, 'aborted')
  where s.saga_id = v_step.saga_id and s.name = v_step.name;
  insert into mbus.saga_note (saga_id, kind, step, error)
  values (v_step.saga_id, 'aborted', v_step.name, coalesce(reason, 'aborted'));
  return v_saga.cancelled_at is null;
end $$;

-- Redrives the dead messages of a stuck saga and returns their number.
-- Errors: MB023 no such saga.
create or replace function mbus.retry_saga(id bigint) returns bigint
language plpgsql security definer set search_path from current set enable_seqscan = off as $$
declare
  v_saga  mbus.saga := mbus._saga_locked(id);
  v_step  record;
  v_count bigint := 0;
begin
  for v_step in
    select s.name, s.state, q.name as queue, c.name as consumer,
           mbus._iid(q.name, case s.state when 'parked' then s.undo_number else s.do_number end) as iid
    from mbus.saga_step s
    join mbus.queue q on q.id = case s.state when 'parked' then s.undo_queue_id else s.do_queue_id end
    join mbus.consumer c on c.id = case s.state when 'parked' then s.undo_consumer_id else s.do_consumer_id end
    where s.saga_id = v_saga.id and (s.state = 'parked' or s.state = 'failed' and v_saga.cancelled_at is null) and not s.is_settled
    order by s.position for no key update of s
  loop
    continue when mbus.redrive(v_step.queue, v_step.consumer, v_step.iid) = 0;
    v_count := v_count + 1;
    update mbus.saga_step s set state = case v_step.state when 'parked' then 'compensating' else 'waiting' end
    where s.saga_id = v_saga.id and s.name = v_step.name;
  end loop;
  select * into v_saga from mbus.saga g where g.id = v_saga.id;
  perform mbus._saga_advance(v_saga, false);
  return v_count;
end $$;

-- For a stuck saga whose step cannot be retried, because its message is lost or will never succeed: records that its work
-- was done by hand.  A failed step past the pivot counts as done, a parked compensation as compensated; the dead
-- message is deleted, and the saga continues.  True if it was stuck at this step.
-- Errors: MB023 no such saga.
create or replace function mbus.settle_saga_step(id bigint, step text) returns boolean
language plpgsql security definer set search_path from current set enable_seqscan = off as $$
declare
  v_saga mbus.saga := mbus._saga_locked(id);
  v_step mbus.saga_step;
begin
  perform mbus._check_isolation();
  select * into v_step from mbus.saga_step s
  where s.saga_id = v_saga.id and s.name = settle_saga_step.step and not s.is_settled
    and (s.state = 'parked' or s.state = 'failed' and v_saga.cancelled_at is null)
  for no key update;
  if not found then return false; end if;
  if v_step.state = 'parked' then
    perform mbus._take_number(v_step.undo_queue_id, v_step.undo_consumer_id, v_step.undo_number);
    update mbus.saga_step s set state = 'compensated', undone_at = mbus.now()
    where s.saga_id = v_saga.id and s.name = v_step.name;
  else
    perform mbus._take_number(v_step.do_queue_id, v_step.do_consumer_id, v_step.do_number);
    update mbus.saga_step s set state = 'done', is_aborted = false, done_at = mbus.now()
    where s.saga_id = v_saga.id and s.name = v_step.name;
    perform mbus._let_go(v_step.do_queue_id, null, array[v_step.do_number]);
  end if;
  perform mbus._saga_advance(v_saga, false);
  return true;
end $$;
