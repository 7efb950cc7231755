-- Unique while pending: keys that stand for a message until all its consumers have consumed it, or it is dead, expired or removed.
-- Nothing is recorded when the message ends: the next post with the key searches for it, so takes and acks cost the same as without keys.
-- Maintenance deletes the keys of messages that no longer exist.

-- Assigns the key to a message and returns null, or returns the number of the pending message that has the key.
--   p_due_at  for a debounced message: it replaces a message with the key that is still delayed, and is due at that time
-- Locks: the row of the key if it is written; the pending message (key share), so that no consumer takes or acks it before the caller
-- commits.
create or replace function mbus._hold_key(p_queue mbus.queue, p_parcel mbus.parcel, p_number bigint, p_due_at timestamptz) returns bigint
language plpgsql set search_path from current as $$
declare
  v_key   constant text := p_parcel.headers -> 'unique_key';
  v_until constant text := coalesce(p_parcel.headers -> 'unique_until', 'done');
  v_held  mbus.unique_key;
begin
  perform mbus._check_isolation();    -- an older snapshot does not see what became of the message
  if v_until not in ('done', 'taken') then
    raise exception 'unknown unique_until: "%"', v_until using errcode = 'MB012', hint = 'Use done or taken.';
  end if;
  loop
    select * into v_held from mbus.unique_key k where k.queue_id = p_queue.id and k.key = v_key;
    if not found then
      insert into mbus.unique_key (queue_id, key, number, expires) values (p_queue.id, v_key, p_number, p_parcel.expires)
      on conflict do nothing;
    elsif p_due_at is not null and mbus._replace_delayed(p_queue, p_parcel, v_held.number, p_due_at)
       or p_due_at is null and (v_held.expires is null or v_held.expires > p_parcel.added)
          and mbus._is_pending(p_queue, v_held.number, v_until = 'taken') then
      return v_held.number;
    else
      update mbus.unique_key k set number = p_number, expires = p_parcel.expires
      where k.queue_id = p_queue.id and k.key = v_key and k.number = v_held.number;
    end if;
    if found then return null; end if;
    -- Another transaction was first, and its message is visible now.
  end loop;
end $$;

-- True while a consumer has yet to consume the message (to take it, with p_is_idle), and it is not dead.
create or replace function mbus._is_pending(p_queue mbus.queue, p_number bigint, p_is_idle boolean) returns boolean
language sql set search_path from current as $$
  select coalesce(bool_or(case
    when s.state = 'gone' or exists (
      select from mbus.dmq d where d.queue_id = p_queue.id and d.number = p_number and d.consumer_id = c.id) then false
    when not p_is_idle or c.contract = 'cursor' then true
    else s.state = 'there' end), false)
  from mbus.consumer c cross join lateral (select mbus._state(p_queue, c.id, p_number) as state offset 0) s
  where c.queue_id = p_queue.id
$$;

-- Checks the next 1,000 keys after a place and deletes those of messages that no longer exist; returns the next place, null after the
-- last one.  Keys of dead messages stay: a message that is redriven still has its key.
create or replace function mbus._forget_unique(p_after jsonb) returns jsonb
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_keys  mbus.unique_key[];
  v_queue mbus.queue;
  v_count bigint;
  v_rows  bigint;
begin
  loop
    v_keys := array(
      select k from mbus.unique_key k where (k.queue_id, k.key) > (coalesce((p_after ->> 0)::integer, 0), coalesce(p_after ->> 1, ''))
      order by k.queue_id, k.key limit 1000);
    v_count := 0;
    for v_queue in select q.* from mbus.queue q where q.id in (select k.queue_id from unnest(v_keys) k) loop
      -- One statement with one snapshot, see mbus._state.
      execute format($query$
        delete from mbus.unique_key u using unnest($1) n
        where u.queue_id = $2 and u.queue_id = n.queue_id and u.key = n.key and u.number = n.number and not (%s
          or exists (select from mbus.delayed d where d.queue_id = $2 and d.number = n.number)
          or exists (select from mbus.leased l where l.queue_id = $2 and l.number = n.number)
          or exists (select from mbus.dmq d where d.queue_id = $2 and d.number = n.number)
          or exists (select from mbus.blocked b where b.queue_id = $2 and b.number = n.number and b.released_by is null))$query$,
        (select string_agg(format('exists (select from %s s where s.id = n.number and s.origin is null or s.origin = n.number)',
                                  mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table)), ' or ') from mbus._tables(v_queue) t))
      using v_keys, v_queue.id;
      get diagnostics v_rows = row_count;
      v_count := v_count + v_rows;
    end loop;
    p_after := case when cardinality(v_keys) = 1000 then jsonb_build_array(v_keys[1000].queue_id, v_keys[1000].key) end;
    exit when v_count < 500 or p_after is null;
  end loop;
  return p_after;
end $$;
