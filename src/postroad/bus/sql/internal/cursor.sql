-- Consumers with a cursor, see README.md.  No row of a message is locked, changed or deleted: the cursor is kept per table of the ring, in
-- the consumer's narrow table beside it, in rows with a negative id; all other statements search from id 0.
--   id = -n, origin null  the log of this cell has been read up to id n; the smallest id is the cursor
--   id = -n, origin 0     message n was taken by its iid before the cursor passed it
-- Rows with a positive id are messages that were given back, delayed, redriven or replayed: they are taken first, as for other consumers.
-- So the cursor skips a log row with an origin.  Both tables of a slot are truncated together.
--
-- A take reads up to the settled id, so a message that is committed late is never skipped; a transaction that stays open holds back later
-- messages.
-- Locks: an advisory lock (consumer id, 0), tried by takes and waited for by takes of one message.

create or replace function mbus._is_cursor(p_consumer_id integer) returns boolean
language sql stable set search_path from current as $$ select c.contract = 'cursor' from mbus.consumer c where c.id = p_consumer_id $$;

create or replace function mbus._refuse_cursor(p_queue text, p_what text) returns void
language plpgsql immutable set search_path from current as $$
begin
  raise exception 'queue "%" has a consumer with a cursor, which does not support %', p_queue, p_what
    using errcode = 'MB012', hint = 'Use a consumer with contract => ''message'', in a queue of its own if necessary.';
end $$;

-- An id such that every transaction that drew it or a smaller one has ended; also the calling one, if it has posted.
-- Maintenance and takes publish it in a sequence; a session keeps a marker for its next take.
create or replace function mbus._settled(p_queue_id integer, p_position regclass, p_settled regclass) returns bigint
language plpgsql volatile set search_path from current as $$
declare
  v_settled bigint := pg_sequence_last_value(p_settled);
  v_markers jsonb;
  v_name    constant text := 'cursor_' || p_queue_id;
  v_older   jsonb;
  v_newer   jsonb;
  v_last    bigint;
begin
  -- Not pg_sequence_last_value, which would make this session a holder.
  execute format('select s.last_value from %s s', p_position) into v_last;
  if v_last = v_settled then return v_settled; end if;
  v_newer := jsonb_build_object('bound', v_last, 'open', mbus._holders(p_position, 0));
  if v_newer -> 'open' <> '[]' then
    v_markers := mbus._recall_markers();
    v_older := v_markers -> v_name;
    if v_older is null or not (v_older -> 'open') ?| array(select jsonb_array_elements_text(v_newer -> 'open')) then
      perform mbus._keep_markers(v_markers || jsonb_build_object(v_name, v_newer));
    else
      return v_settled;
    end if;
    v_last := (v_older ->> 'bound')::bigint;
  end if;
  if v_last > v_settled then
    perform mbus._pin(p_position);
    perform setval(p_settled, v_last);
    return v_last;
  end if;
  return v_settled;
end $$;

-- Publishes the marker of the last maintenance run of this session, if it is settled.  The marker of the current run is not used, because
-- the run may have posted (schedules, followers, sagas) and other sessions see the sequence before its commit.
create or replace function mbus._publish_settled(p_queue mbus.queue, p_mark jsonb) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_settled constant regclass := to_regclass(format('mbus.%I', 'qs$' || p_queue.name || '$settled'));
begin
  if (p_mark ->> 'bound')::bigint > pg_sequence_last_value(v_settled)
     and mbus._settled_mark(p_queue.position, null, p_mark) is not null then
    perform setval(v_settled, (p_mark ->> 'bound')::bigint);
  end if;
end $$;

-- The condition for rows l of a log that the cursor has not passed.
create or replace function mbus._ahead_condition(p_ready text) returns text
language sql immutable set search_path from current as $$
  select format('l.origin is null
    and l.id > coalesce((select - c.id from mbus.%1$I c where c.id < 0 and c.origin is null order by c.id limit 1), 0)
    and l.id <> all (array(select - c.id from mbus.%1$I c where c.id < 0 and c.origin = 0))', p_ready)
$$;

-- The rows of a consumer's ready table, to be searched by id; for a consumer with a cursor, also the rows of the log that are ahead of
-- the cursor.
create or replace function mbus._ready_rows(p_consumer_id integer, p_ready text, p_payload text, p_order text default 'asc') returns text
language sql stable set search_path from current as $$
  select case when not mbus._is_cursor(p_consumer_id) then format('mbus.%I', p_ready) else format($query$(
    (select s.id, s.origin, s.token, s.leased_until from mbus.%1$I s where s.id >= 0 order by s.id %4$s)
    union all
    (select l.id, null::bigint, null::bigint, null::timestamptz from mbus.%2$I l where %3$s order by l.id %4$s))$query$,
    p_ready, p_payload, mbus._ahead_condition(p_ready), p_order) end
$$;
