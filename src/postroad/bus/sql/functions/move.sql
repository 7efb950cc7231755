-- Takes up to amt messages of one consumer in a state (or the one with the iid) and posts them to another queue, in one transaction;
-- returns their number.  They get iids of the new queue and keep the old one in header moved_from; a delay that
-- they were posted with stays in effect, the delay of a retry does not.
-- Call it again until it returns 0.
-- Locks: the rows; waits for rows that another transaction holds.
-- Errors: MB001, MB002, MB011 payloads differ, MB012 state, same queue or step of a saga, MB014 isolation.
create or replace function mbus.move(
  qname text, destination text, cname text default 'default', state text default 'ready', iid text default null,
  amt integer default 1000) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue       mbus.queue := mbus._queue(qname);
  v_consumer    mbus.consumer := mbus._consumer(v_queue, cname);
  v_destination mbus.queue := mbus._queue(destination);
  v_number      bigint;
  v_parcel      mbus.parcel;
  v_count       bigint := 0;
begin
  perform mbus._check_amount(amt);
  if move.state = 'retained' then perform mbus._browse_aside(move.state, null, null); end if;    -- raises
  perform mbus._check_move(v_queue, v_destination);
  for v_number in
    select mbus._number(qname, move.iid) where move.iid is not null
    union all
    select mbus._number(qname, b.iid) from mbus.browse(qname, cname, move.state, amt => move.amt) b
    where move.iid is null and b.is_match
  loop
    for v_parcel in select * from mbus._take_number(v_queue.id, v_consumer.id, v_number) loop
      -- The step would count as done while its message waits in another queue.
      perform mbus._check_no_step(v_queue, v_number);
      perform mbus._post_moved(v_queue, v_consumer.id, destination, v_parcel);
      v_count := v_count + 1;
    end loop;
  end loop;
  return v_count;
end $$;

create or replace function mbus._check_move(p_queue mbus.queue, p_destination mbus.queue) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_destination.id = p_queue.id then
    raise exception 'the messages are already in queue "%"', p_queue.name
      using errcode = 'MB012', hint = 'Choose another queue; use mbus.redrive for dead messages.';
  end if;
  if p_destination.payload <> p_queue.payload then
    raise exception 'queue "%" carries % and queue "%" carries %', p_queue.name, p_queue.payload,
      p_destination.name, p_destination.payload
      using errcode = 'MB011', hint = 'Move to a queue with the same payload.';
  end if;
end $$;

create or replace function mbus._post_moved(p_queue mbus.queue, p_consumer_id integer, p_destination text, p_parcel mbus.parcel)
returns void
language plpgsql set search_path from current as $$
begin
  execute format('select mbus.%I(data => $1.%I, headers => $2, properties => $1.properties, expires => $1.expires,
                         delayed_until => $3)',
                 'post_' || p_destination, 'data_' || p_queue.payload)
  using p_parcel, coalesce(p_parcel.headers, '') - '{consume_after,dedup_key,unique_key,debounce}'::text[]
        || hstore('moved_from', mbus._iid(p_queue.name, p_parcel.number)),
        case when mbus._attempts(p_parcel.trail) = 0 then (p_parcel.trail ->> 'delayed_until')::timestamptz end;
  perform mbus._taken(p_queue.id, p_consumer_id, p_parcel.number);
end $$;
