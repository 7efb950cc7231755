-- Copies messages that are posted to a queue from now on and match the selector into another queue.  The copy keeps
-- data, properties, headers, delay and expiry; header enqueue_time is that of the original, origin_iid is its iid.
-- It is created in the producer's transaction and is independent afterwards.
--
-- Locks: an advisory lock for all changes of triggers, then that of the source queue.
-- Errors: MB001, MB008 selector, MB011 other payload, MB020 a message could return to a queue, MB030 exists.
create or replace function mbus.create_trigger(src_queue_name text, dst_queue_name text, selector text default null) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_source      mbus.queue;
  v_destination mbus.queue;
begin
  perform mbus._lock_triggers();
  v_source := mbus._alter((mbus._queue(src_queue_name)).id);
  v_destination := mbus._queue(dst_queue_name);
  if v_source.payload <> v_destination.payload then
    raise exception 'queue "%" carries %, queue "%" carries %',
        src_queue_name, v_source.payload, dst_queue_name, v_destination.payload
      using errcode = 'MB011', hint = 'A trigger copies between queues of the same payload.';
  end if;
  if exists (select from mbus.follower f where f.queue_id = v_source.id and f.destination_id = v_destination.id) then
    raise exception 'there is already a trigger from "%" to "%"', src_queue_name, dst_queue_name
      using errcode = 'MB030', hint = 'Drop it first with mbus.drop_trigger.';
  end if;
  -- Follows chains of any number of triggers.
  if v_source.id in (
    with recursive reached(id) as (
      select v_destination.id
      union
      select f.destination_id from reached r join mbus.follower f on f.queue_id = r.id where f.destination_id is not null)
    select r.id from reached r) then
    raise exception 'a trigger from "%" to "%" would create a loop', src_queue_name, dst_queue_name
      using errcode = 'MB020', hint = 'Messages would be copied endlessly. See the view mbus.followers.';
  end if;
  perform mbus._check_selector(v_source, selector);
  insert into mbus.follower (queue_id, destination_id, selector) values (v_source.id, v_destination.id, create_trigger.selector);
  update mbus.queue set has_followers = true where id = v_source.id returning * into v_source;
  perform mbus._generate(v_source);
end $$;

-- Removes a trigger; existing copies stay.
-- Errors: MB001, MB031 no such trigger.
create or replace function mbus.drop_trigger(src_queue_name text, dst_queue_name text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_source mbus.queue;
begin
  perform mbus._lock_triggers();
  v_source := mbus._alter((mbus._queue(src_queue_name)).id);
  delete from mbus.follower f
  where f.queue_id = v_source.id and f.destination_id = (mbus._queue(dst_queue_name)).id;
  if not found then
    raise exception 'there is no trigger from "%" to "%"', src_queue_name, dst_queue_name
      using errcode = 'MB031', hint = 'See the view mbus.followers.';
  end if;
  perform mbus._refollow(v_source);
end $$;

create or replace function mbus._lock_triggers() returns void
language sql set search_path from current as $$ select pg_advisory_xact_lock(mbus._lock_class(), 0) $$;

-- Rebuilds the functions of a queue after a follower was removed; without followers the plain functions are used again.
create or replace function mbus._refollow(p_queue mbus.queue) returns void
language plpgsql set search_path from current as $$
begin
  update mbus.queue set has_followers = exists (select from mbus.follower f where f.queue_id = p_queue.id)
  where id = p_queue.id returning * into p_queue;
  perform mbus._generate(p_queue);
end $$;
