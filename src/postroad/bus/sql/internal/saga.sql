-- Advances a saga.  Every function here is called with the saga's row locked and waits for no other lock: messages that
-- other transactions hold are left to the next check, at the commit of that transaction or by maintenance.

-- Removes a message that is stored outside the ring, unless another transaction has locked it or a message that it waits for.
-- True if it does not exist.
create or replace function mbus._saga_drop(p_queue_id integer, p_number bigint) returns boolean
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_blocked bigint;
  v_waits   bigint;
  v_free    bigint;
begin
  select b.id into v_blocked from mbus.blocked b
  where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null for update skip locked;
  if v_blocked is null then
    return not exists (select from mbus.blocked b
                       where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null);
  end if;
  -- Handlers of its predecessors hold these rows, and the delete would wait for them.
  select count(*) into v_waits from mbus.wait w where w.blocked_id = v_blocked;
  perform from mbus.wait w where w.blocked_id = v_blocked for update skip locked;
  get diagnostics v_free = row_count;
  if v_free < v_waits then return false; end if;
  delete from mbus.blocked b where b.id = v_blocked;
  return true;
end $$;

-- Opens the gate of a message.  False if the message is not stored outside the ring.
create or replace function mbus._saga_open(p_saga mbus.saga, p_queue_id integer, p_number bigint) returns boolean
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_row   mbus.blocked;
  v_queue mbus.queue;
begin
  select * into v_row from mbus.blocked b
  where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null;
  if v_row.id is null then return false; end if;
  update mbus.wait w set done_by = pg_current_xact_id()
  where w.blocked_id = v_row.id and w.queue_id = p_saga.queue_id and w.number = p_saga.gate_number and w.done_by is null;
  if not found then return true; end if;    -- it was opened before, and waits for something else
  perform mbus._unblock(array[v_row.id]);
  select * into v_queue from mbus.queue q where q.id = p_queue_id and q.has_followers;
  if found then
    execute format('select mbus.%I($1, $2, null)', '_follow_' || v_queue.name) using mbus._parcel(v_row), p_number;
  end if;
  return true;
end $$;

-- The state of a consumer's copy: there, held (by a transaction or a lease) or gone.
create or replace function mbus._saga_find(p_queue_id integer, p_consumer_id integer, p_number bigint) returns text
language sql set search_path from current set enable_seqscan = off as $$
  select coalesce(replace((select mbus._state(q, p_consumer_id, p_number) from mbus.queue q where q.id = p_queue_id), 'leased', 'held'), 'gone')
$$;

-- Removes a forward message in any state.  Returns removed, held or gone.
create or replace function mbus._saga_remove(p_queue_id integer, p_consumer_id integer, p_number bigint) returns text
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_state text := mbus._saga_find(p_queue_id, p_consumer_id, p_number);
begin
  if v_state <> 'there' then return v_state; end if;
  if exists (select from mbus.blocked b where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null) then
    return case when mbus._saga_drop(p_queue_id, p_number) then 'removed' else 'held' end;
  end if;
  perform from mbus._take_number(p_queue_id, p_consumer_id, p_number);
  -- Removes the copies of other consumers, unless a transaction holds them.
  perform mbus._take_number(p_queue_id, c.id, p_number) from mbus.consumer c
  where c.queue_id = p_queue_id and c.id <> p_consumer_id and mbus._saga_find(p_queue_id, c.id, p_number) = 'there';
  return 'removed';
end $$;

-- Starts the rollback.
create or replace function mbus._saga_cancel(p_saga mbus.saga, p_reason text) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  update mbus.saga g set state = 'compensating', cancelled_at = mbus.now(), error = p_reason
  where g.id = p_saga.id returning * into p_saga;
  perform mbus._saga_advance(p_saga, false);
end $$;

-- Advances the saga as far as possible.  p_is_check: also checks for handled messages without a note.
create or replace function mbus._saga_advance(p_saga mbus.saga, p_is_check boolean) returns void
language plpgsql set search_path from current as $$
begin
  perform mbus._check_isolation();
  if p_saga.finished_at is not null then return; end if;
  if p_saga.cancelled_at is null then
    perform mbus._saga_forward(p_saga, p_is_check);
  else
    perform mbus._saga_back(p_saga, p_is_check);
  end if;
end $$;

-- Moving forwards, the saga is complete when all steps are done, unless another transaction has taken the bung.
create or replace function mbus._saga_forward(p_saga mbus.saga, p_is_check boolean) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_step  mbus.saga_step;
  v_again timestamptz := p_saga.deadline;
  v_find  text;
begin
  if p_is_check then
    for v_step in select * from mbus.saga_step s where s.saga_id = p_saga.id and s.state = 'waiting' for no key update skip locked loop
      v_find := mbus._saga_find(v_step.do_queue_id, v_step.do_consumer_id, v_step.do_number);
      if v_find = 'gone' then
        update mbus.saga_step s set state = 'done', done_at = mbus.now()
        where s.saga_id = p_saga.id and s.name = v_step.name;
      elsif v_find = 'held' then
        v_again := least(v_again, mbus.now() + interval '1 second');
      end if;
    end loop;
    if p_saga.deadline <= mbus.now() then v_again := nullif(v_again, p_saga.deadline); end if;
  else
    v_again := p_saga.check_at;
  end if;
  if not exists (select from mbus.saga_step s where s.saga_id = p_saga.id and s.state <> 'done') then
    if mbus._saga_drop(p_saga.queue_id, p_saga.bung_number) then
      update mbus.saga_step s set is_settled = true where s.saga_id = p_saga.id;
      for v_step in select * from mbus.saga_step s where s.saga_id = p_saga.id and s.undo_number is not null order by s.position loop
        -- Only the saga uses it while its gate is closed.
        delete from mbus.blocked b where b.queue_id = v_step.undo_queue_id and b.number = v_step.undo_number and b.released_by is null;
        perform mbus._done(v_step.undo_queue_id, null, array[v_step.undo_number]);
      end loop;
      perform mbus._saga_finish(p_saga, 'completed');
      return;
    end if;
    v_again := mbus.now() + interval '1 second';
  end if;
  update mbus.saga g
  set check_at = v_again,
      state = case when exists (select from mbus.saga_step s where s.saga_id = g.id and s.state = 'failed')
                   then 'stuck' else 'running' end
  where g.id = p_saga.id;
end $$;

-- Ends the saga with its closing message, which is kept in the queue that was named for it and deleted otherwise.
create or replace function mbus._saga_finish(p_saga mbus.saga, p_state text) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_close record;
begin
  update mbus.saga g set state = p_state, finished_at = mbus.now(), check_at = null where g.id = p_saga.id;
  for v_close in
    values ('completed', p_saga.completed_queue_id, p_saga.completed_number),
           ('compensated', p_saga.compensated_queue_id, p_saga.compensated_number)
  loop
    if v_close.column1 = p_state and v_close.column2 <> p_saga.queue_id then
      perform mbus._saga_open(p_saga, v_close.column2, v_close.column3);
    else
      delete from mbus.blocked b where b.queue_id = v_close.column2 and b.number = v_close.column3 and b.released_by is null;
    end if;
  end loop;
  -- Other messages that wait for the bung.
  perform mbus._done(p_saga.queue_id, null, array[p_saga.bung_number]);
end $$;

-- Raises MB012 for a message that a saga needs: without it the saga could neither complete nor roll back.
create or replace function mbus._check_no_step(p_queue mbus.queue, p_number bigint) returns void
language plpgsql stable set search_path from current set enable_seqscan = off as $$
declare
  v_saga bigint;
begin
  select s.saga_id into v_saga from mbus.saga_step s
  where not s.is_settled and (s.do_queue_id = p_queue.id and s.do_number = p_number
                              or s.undo_queue_id = p_queue.id and s.undo_number = p_number) limit 1;
  if found then
    raise exception 'message "%" is a step of saga %', mbus._iid(p_queue.name, p_number), v_saga
      using errcode = 'MB012', hint = 'Its saga needs it. Cancel the saga, or retry the step.';
  end if;
end $$;
