-- Does what keeps a queue fast and moving: releases due messages, ends leases, deletes expired
-- messages, raises the hints, rotates and reclaims slots.  Returns one row per queue where it did
-- something.  With a name only that queue.
--
-- Nobody has to call it for the bus to be correct.  Any session may, about twice a second, in a
-- transaction of its own; two at once share the work.  Locks: the queue's advisory lock and whatever
-- is truncated, all without waiting.
create or replace function mbus.maintain(qname text default null)
returns table (queue text, rotated bigint, reclaimed bigint, released bigint, ended bigint, expired bigint, settled bigint)
language plpgsql security definer set search_path from current as $$
declare
  v_now     constant timestamptz := mbus.now();
  v_tick    constant bigint := (extract(epoch from v_now) * 2)::bigint;
  v_queues  mbus.queue[];
  v_queue   mbus.queue;
  v_tails   bigint[];
  v_bounds  bigint[];
  v_earlier text[];
  v_later   text[];
begin
  perform mbus._check_isolation();
  if qname is not null then perform mbus._queue(qname); end if;
  perform setval('mbus.attended', extract(epoch from v_now)::bigint);
  delete from mbus.dedup d where (d.queue_id, d.key) in (
    select k.queue_id, k.key from mbus.dedup k where k.until <= v_now limit 1000 for update skip locked);

  v_queues := mbus._restless(qname, v_tick);
  -- First the tails, then the ids, then who may have drawn them: see mbus._settle.
  v_tails := array(select mbus._figure(q.name, 'tail') from unnest(v_queues) with ordinality
                   q(id, name, payload, slots, is_roles_security_model, mode, lanes, has_groups, position, swept, created_at, place)
                   order by place);
  v_bounds := array(select pg_sequence_last_value(q.position) from unnest(v_queues) with ordinality
                    q(id, name, payload, slots, is_roles_security_model, mode, lanes, has_groups, position, swept, created_at, place)
                    order by place);
  v_earlier := mbus._open_posts(array(select q.position from unnest(v_queues) q));

  for v_place in 1 .. cardinality(v_queues) loop
    v_queue := v_queues[v_place];
    queue := v_queue.name;
    -- What is due counts as activity of its own, so it is done before the second look at open posts.
    ended := mbus._end_leases(v_queue, 1000);
    released := mbus._release(v_queue, 1000);
    expired := mbus._expire(v_queue, 1000);
    v_later := mbus._open_posts(array[v_queue.position]);
    settled := case when exists (select from unnest(v_later) t where t = any (v_earlier)) then 0
                    else mbus._settle(v_queue, v_bounds[v_place], v_tails[v_place]) end;
    rotated := mbus._rotate(v_queue, 8 * 1024 * 1024);
    reclaimed := mbus._reclaim(v_queue);
    perform mbus._sample(v_queue, v_now);
    -- An empty queue is left alone until its next post.
    perform setval(v_queue.swept, case when mbus._is_quiet(v_queue, v_bounds[v_place]) then v_bounds[v_place] else 0 end);
    if ended + released + expired + settled + rotated + reclaimed > 0 then
      return next;
    end if;
  end loop;
end $$;
