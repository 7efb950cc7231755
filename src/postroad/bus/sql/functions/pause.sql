-- Pausing.  The functions of a paused consumer are generated without the part that takes messages, so that other consumers have no extra
-- cost.  A transaction that has used the queue before may run the previous functions until it ends, see README.md.
-- Locks: the queue's advisory lock.

-- Lets a consumer, or without a name every present and future consumer of the queue, take nothing until mbus.resume.  Posts continue, held
-- leases can be answered, and operators can browse, purge, move and redrive.  Returns false if it was already paused; nothing is changed
-- then.
-- Errors: MB001, MB002, MB012 the queue of sagas.
create or replace function mbus.pause(
  qname text, cname text default null, reason text default null, paused_by text default session_user) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_queue constant mbus.queue := mbus._alter((mbus._queue(qname)).id);
begin
  if qname = 'sagas' then
    raise exception 'queue "sagas" cannot be paused: taking a bung rolls its saga back'
      using errcode = 'MB012', hint = 'Pause the queues of the steps.';
  end if;
  insert into mbus.pause (queue_id, consumer_id, paused_at, paused_by, reason)
  values (v_queue.id, case when cname is not null then (mbus._consumer(v_queue, cname)).id end, mbus.now(),
          coalesce($4, session_user), nullif($3, ''))
  on conflict do nothing;
  if not found then return false; end if;
  perform mbus._generate(v_queue);
  return true;
end $$;

-- Ends the pause of a consumer, or without a name that of the queue; a consumer that was paused itself stays paused.
-- Returns false if it was not paused.  A consumer that begins in the past and whose replay was stopped gives up the rest of its past.
-- Errors: MB001, MB002, MB012 it begins in the past and its replay has not ended.
create or replace function mbus.resume(qname text, cname text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._alter((mbus._queue(qname)).id);
  v_consumer constant integer := case when cname is not null then (mbus._consumer(v_queue, cname)).id end;
begin
  delete from mbus.pause p where p.queue_id = v_queue.id and p.consumer_id is not distinct from v_consumer;
  if not found then return false; end if;
  -- What it consumes from now on would be posted to it again.
  update mbus.replay r set bound = r.place where r.consumer_id = v_consumer and r.is_start and r.error is not null;
  if exists (select from mbus.replay r where r.consumer_id = v_consumer and r.is_start and r.finished_at is null) then
    raise exception 'consumer "%" of queue "%" begins in the past and its replay has not ended', cname, qname
      using errcode = 'MB012', hint = 'Wait until it has ended, or stop it with mbus.stop_replay to give up its past.';
  end if;
  perform mbus._generate(v_queue);
  return true;
end $$;
