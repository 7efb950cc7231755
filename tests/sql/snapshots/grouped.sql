CREATE OR REPLACE FUNCTION mbus._match_sample(p_parcel mbus.parcel, p_number bigint)
 RETURNS integer[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_recipients integer[] := '{8000}';
  t mbus.qt_model;
begin
  t.id := p_number;
  t.iid := 'sample.' || p_number || '@node';
  t.added := p_parcel.added;
  t.delayed_until := (p_parcel.trail ->> 'delayed_until')::timestamptz;
  t.expires := p_parcel.expires;
  t.headers := p_parcel.headers;
  t.properties := p_parcel.properties;
  t.data := p_parcel.data_hstore;

  return v_recipients;
end $function$

CREATE OR REPLACE FUNCTION mbus._put_sample(p_parcel mbus.parcel)
 RETURNS bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_id         constant bigint := nextval('mbus."qs$sample$position"');
  v_number     constant bigint := coalesce(p_parcel.number, v_id);
  v_origin     constant bigint := nullif(v_number, v_id);
  v_lane       constant integer := case p_parcel.headers -> 'priority' when 'high' then 1 when 'low' then 2 else 0 end;
  v_recipients integer[];
  v_generation bigint;
begin
  if p_parcel.headers ? 'reply_to' then
    p_parcel.headers := mbus._correlate(p_parcel.headers, 'sample.' || v_number || '@node', p_parcel.expires);
  end if;

  loop
    v_generation := pg_sequence_last_value('mbus."qs$sample$tail"');
    case v_generation % 2 + 2 * v_lane
    when 2 then
      insert into mbus."qt$sample$h0" (id, added, data, headers, properties, expires, origin, trail)
      select v_id, p_parcel.added, p_parcel.data_hstore, p_parcel.headers, p_parcel.properties,
             p_parcel.expires, v_origin, p_parcel.trail
      where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

    when 3 then
      insert into mbus."qt$sample$h1" (id, added, data, headers, properties, expires, origin, trail)
      select v_id, p_parcel.added, p_parcel.data_hstore, p_parcel.headers, p_parcel.properties,
             p_parcel.expires, v_origin, p_parcel.trail
      where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

    when 0 then
      insert into mbus."qt$sample$0" (id, added, data, headers, properties, expires, origin, trail)
      select v_id, p_parcel.added, p_parcel.data_hstore, p_parcel.headers, p_parcel.properties,
             p_parcel.expires, v_origin, p_parcel.trail
      where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

    when 1 then
      insert into mbus."qt$sample$1" (id, added, data, headers, properties, expires, origin, trail)
      select v_id, p_parcel.added, p_parcel.data_hstore, p_parcel.headers, p_parcel.properties,
             p_parcel.expires, v_origin, p_parcel.trail
      where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

    else
      -- This transaction began before the queue got that lane and still runs the old functions.
      p_parcel.number := v_number;
      return mbus._put_again('sample', v_lane, p_parcel);
    end case;
    exit when found;
  end loop;
  return v_number;
end $function$

CREATE OR REPLACE FUNCTION mbus._sample(p_queue mbus.queue, p_now timestamp with time zone)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
  with taken as (
    insert into mbus.sample (consumer_id, taken_at, posted)
    select c.id, p_now, pg_sequence_last_value(p_queue.position)
    from mbus.consumer c
    where c.queue_id = p_queue.id
      and not exists (select from mbus.sample s where s.consumer_id = c.id and s.taken_at > p_now - interval '10 seconds')
    on conflict do nothing returning consumer_id, posted),
  counted as (
    insert into mbus.tally (consumer_id, at, kind, messages)
    select n.consumer_id, p_now, 'posted', n.posted - s.posted
    from taken n cross join lateral (
      -- The previous sample: a statement does not see its own inserts.
      select b.posted from mbus.sample b where b.consumer_id = n.consumer_id order by b.taken_at desc limit 1) s
    where n.posted > s.posted)
  delete from mbus.sample s using taken n where s.consumer_id = n.consumer_id and s.taken_at < p_now - interval '10 minutes'
$function$

CREATE OR REPLACE FUNCTION mbus._take_sample_by_default(amt integer)
 RETURNS SETOF mbus.parcel
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 100
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
  v_missing    integer := amt;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_found      bigint;
  v_tally      bigint;
  v_setting    text;
  v_hint       bigint;
  v_row        record;
  v_ids        bigint[];
  v_seen       text[];
  v_retries    mbus.parcel[];
  v_is_later   boolean := false;
begin
  -- The checks are called only to raise, and the queue is attended only when no maintenance runs.
  if amt is null or amt < 0 then
    perform mbus._check_amount(amt);
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform mbus._check_isolation();
  end if;
  if extract(epoch from v_now) - pg_sequence_last_value('mbus.attended') >= 2 then
    perform mbus._attend(7000, 8000, amt);
  end if;
  -- Only the first message of each group is taken, and none while this consumer holds another message of that group.
  -- Locks: an advisory lock per group (consumer id, hash of the group), without waiting, then the rows.  A group is locked in one
  -- statement, checked in the next and its row deleted later: their snapshots include the work of the last holder of the group.  Retries
  -- of a group come first, because they are older than any message of the group on the ring.
  v_retries := array(select p from mbus._take_group_retries(7000, 8000, amt) p);
  v_missing := amt - cardinality(v_retries);
  if v_missing < amt then
    -- Locks storage of the consumer, which nothing below may touch: drop_consumer waits for this transaction.
    perform pg_sequence_last_value('mbus."qt$sample$0$hint"');
  end if;
  v_seen := array(select r.headers -> 'group' from unnest(v_retries) r);
  return query
  select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], g.data, null::jsonb, null::text, null::bytea
  from (select r.number as id, null::bigint as origin, r.added, r.expires, r.headers, r.properties, r.trail,
               r.data_hstore as data from unnest(v_retries) r) g
  order by g.id;
  foreach v_lane in array '{1,0}'::integer[] loop
    v_tail := pg_sequence_last_value('mbus."qs$sample$tail"');
    for v_generation in pg_sequence_last_value('mbus."qs$sample$head"') .. v_tail loop
      exit when v_missing <= 0;
      v_ids := '{}';
      case v_generation % 2 + 2 * v_lane
        when 2 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$h0$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$h0" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$h0" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$h0" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], g.data, null::jsonb, null::text, null::bytea
            from gone g order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 3 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$h1$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$h1" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$h1" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$h1" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], g.data, null::jsonb, null::text, null::bytea
            from gone g order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 0 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$0$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$0" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$0" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$0" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], g.data, null::jsonb, null::text, null::bytea
            from gone g order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 1 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$1$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$1" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$1" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$1" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], g.data, null::jsonb, null::text, null::bytea
            from gone g order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

      end case;
    end loop;
  end loop;
end $function$

CREATE OR REPLACE FUNCTION mbus.ackn_sample_by_default(iids text[], tokens bigint[])
 RETURNS bigint[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_indexscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
  v_now     constant timestamptz := mbus.now();
  v_numbers constant bigint[] := array(
    select case when ltrim(m.digits, '0123456789') = '' and left(m.digits, 1) <> '0' and length(m.digits) between 1 and 18
                  and i = 'sample.' || m.digits || '@node' then m.digits::bigint end
    from unnest(iids) i cross join lateral (select split_part(substr(i, length('sample.') + 1), '@', 1) as digits offset 0) m);
  v_left    bigint[] := tokens;
  v_cell    integer;
  v_found   bigint[];
  v_acked   bigint[] := '{}';
  v_count   bigint;
  v_tally   bigint;
  v_setting text;
begin
  if cardinality(iids) is distinct from cardinality(tokens) then
    perform mbus._check_tokens(iids, tokens);
  end if;
  while cardinality(v_left) > 0 loop
    v_cell := v_left[1] & 1023;
    v_found := null;
    -- A token that was never issued may name a slot that does not exist yet.
    if v_cell % 2 <= pg_sequence_last_value('mbus."qs$sample$tail"') then
    case v_cell
    when 2 then
      with gone as (
        delete from mbus."qt$sample$h0" s
        where (s.id = any (v_numbers) and s.origin is null or s.origin = any (v_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(v_numbers, tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;

    when 3 then
      with gone as (
        delete from mbus."qt$sample$h1" s
        where (s.id = any (v_numbers) and s.origin is null or s.origin = any (v_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(v_numbers, tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;

    when 0 then
      with gone as (
        delete from mbus."qt$sample$0" s
        where (s.id = any (v_numbers) and s.origin is null or s.origin = any (v_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(v_numbers, tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;

    when 1 then
      with gone as (
        delete from mbus."qt$sample$1" s
        where (s.id = any (v_numbers) and s.origin is null or s.origin = any (v_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(v_numbers, tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;

    else null;
    end case;
    end if;
    v_acked := v_acked || v_found;
    exit when cardinality(v_acked) = cardinality(tokens);
    v_left := array(select t from unnest(v_left) t where t & 1023 is distinct from v_cell);
  end loop;
  v_count := cardinality(v_acked);
  -- See mbus._tally.
  v_setting := current_setting('mbus.consumed_8000', true);
  v_tally := case when v_setting ~ '^[0-9]{1,18}$' then v_setting::bigint else 0 end + v_count;
  if v_tally % 16777216 > 0 then
    if extract(epoch from v_now)::bigint - v_tally / 16777216 between 0 and 2 then
      v_setting := set_config('mbus.consumed_8000', v_tally::text, false);
    else
      perform mbus._tally(8000, 'consumed', v_count);
    end if;
  end if;
  if v_count < cardinality(tokens) then
    return mbus._ack_moved(7000, 8000, v_numbers, tokens, v_acked);
  end if;
  return '{}';
end $function$

CREATE OR REPLACE FUNCTION mbus.batch_sample_by_default(amt integer)
 RETURNS TABLE(id bigint, added timestamp with time zone, iid text, delayed_until timestamp with time zone, expires timestamp with time zone, received integer[], headers hstore, properties hstore, data hstore, constants text)
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 100
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
  v_missing    integer := amt;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_found      bigint;
  v_tally      bigint;
  v_setting    text;
  v_hint       bigint;
  v_row        record;
  v_ids        bigint[];
  v_seen       text[];
  v_retries    mbus.parcel[];
  v_is_later   boolean := false;
begin
  -- The checks are called only to raise, and the queue is attended only when no maintenance runs.
  if amt is null or amt < 0 then
    perform mbus._check_amount(amt);
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform mbus._check_isolation();
  end if;
  if extract(epoch from v_now) - pg_sequence_last_value('mbus.attended') >= 2 then
    perform mbus._attend(7000, 8000, amt);
  end if;
  -- Only the first message of each group is taken, and none while this consumer holds another message of that group.
  -- Locks: an advisory lock per group (consumer id, hash of the group), without waiting, then the rows.  A group is locked in one
  -- statement, checked in the next and its row deleted later: their snapshots include the work of the last holder of the group.  Retries
  -- of a group come first, because they are older than any message of the group on the ring.
  v_retries := array(select p from mbus._take_group_retries(7000, 8000, amt) p);
  v_missing := amt - cardinality(v_retries);
  if v_missing < amt then
    -- Locks storage of the consumer, which nothing below may touch: drop_consumer waits for this transaction.
    perform pg_sequence_last_value('mbus."qt$sample$0$hint"');
  end if;
  perform mbus._note_taken(v_retries, 8000);
  v_seen := array(select r.headers -> 'group' from unnest(v_retries) r);
  return query
  select coalesce(g.origin, g.id), g.added, 'sample.' || coalesce(g.origin, g.id) || '@node',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text
  from (select r.number as id, null::bigint as origin, r.added, r.expires, r.headers, r.properties, r.trail,
               r.data_hstore as data from unnest(v_retries) r) g
  order by g.id;
  foreach v_lane in array '{1,0}'::integer[] loop
    v_tail := pg_sequence_last_value('mbus."qs$sample$tail"');
    for v_generation in pg_sequence_last_value('mbus."qs$sample$head"') .. v_tail loop
      exit when v_missing <= 0;
      v_ids := '{}';
      case v_generation % 2 + 2 * v_lane
        when 2 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$h0$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$h0" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$h0" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$h0" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, 'sample.' || coalesce(g.origin, g.id) || '@node',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text
            from gone g where (
          select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), e'\n8000:',
            array_agg(coalesce(n.origin, n.id)), jsonb_object_agg(n.origin, n.trail) filter (where n.origin is not null)), true)
          from gone n having count(*) > 0) is not null    -- see mbus._taken_here
        order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 3 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$h1$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$h1" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$h1" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$h1" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, 'sample.' || coalesce(g.origin, g.id) || '@node',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text
            from gone g where (
          select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), e'\n8000:',
            array_agg(coalesce(n.origin, n.id)), jsonb_object_agg(n.origin, n.trail) filter (where n.origin is not null)), true)
          from gone n having count(*) > 0) is not null    -- see mbus._taken_here
        order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 0 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$0$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$0" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$0" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$0" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, 'sample.' || coalesce(g.origin, g.id) || '@node',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text
            from gone g where (
          select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), e'\n8000:',
            array_agg(coalesce(n.origin, n.id)), jsonb_object_agg(n.origin, n.trail) filter (where n.origin is not null)), true)
          from gone n having count(*) > 0) is not null    -- see mbus._taken_here
        order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

        when 1 then
          v_hint := pg_sequence_last_value('mbus."qt$sample$1$hint"');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, r.headers -> 'group' as name from mbus."qt$sample$1" r
             where r.id >= v_hint and r.token is null and (r.expires is null or r.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before(7000, 8000, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock(8000, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held(8000, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus."qs$sample$head"');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus."qt$sample$1" s
              where s.ctid = any (array(
                select r.ctid from mbus."qt$sample$1" r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
            select coalesce(g.origin, g.id), g.added, 'sample.' || coalesce(g.origin, g.id) || '@node',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text
            from gone g where (
          select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), e'\n8000:',
            array_agg(coalesce(n.origin, n.id)), jsonb_object_agg(n.origin, n.trail) filter (where n.origin is not null)), true)
          from gone n having count(*) > 0) is not null    -- see mbus._taken_here
        order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;

      end case;
    end loop;
  end loop;
  -- See mbus._tally.
  v_setting := current_setting('mbus.consumed_8000', true);
  v_tally := case when v_setting ~ '^[0-9]{1,18}$' then v_setting::bigint else 0 end + amt - v_missing;
  if v_tally % 16777216 > 0 then
    if extract(epoch from v_now)::bigint - v_tally / 16777216 between 0 and 2 then
      v_setting := set_config('mbus.consumed_8000', v_tally::text, false);
    else
      perform mbus._tally(8000, 'consumed', amt - v_missing);
    end if;
  end if;
end $function$

CREATE OR REPLACE FUNCTION mbus.clear_queue_sample()
 RETURNS bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
begin
  -- The cast matters: with a bare literal, mbus._queue(…) would be read as a cast to the array type.
  return mbus._expire(mbus._queue('sample'::text), 1000000);
end $function$

CREATE OR REPLACE FUNCTION mbus.consume_sample_by_default()
 RETURNS SETOF mbus.qt_model
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 1
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
begin
  return query
  select m.id, m.added, m.iid, m.delayed_until, m.expires, m.received,
         coalesce(m.headers, m.constants::hstore || hstore('enqueue_time', m.added::text)), m.properties, m.data
  from mbus.batch_sample_by_default(1) m;
end $function$

CREATE OR REPLACE FUNCTION mbus.consumen_sample_by_default(amt integer)
 RETURNS SETOF mbus.qt_model
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 100
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
begin
  return query
  select m.id, m.added, m.iid, m.delayed_until, m.expires, m.received,
         coalesce(m.headers, m.constants::hstore || hstore('enqueue_time', m.added::text)), m.properties, m.data
  from mbus.batch_sample_by_default(amt) m;
end $function$

CREATE OR REPLACE FUNCTION mbus.lease_sample_by_default(amt integer DEFAULT 1, ttl interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF mbus.lease_model
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 100
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
begin
  return query
  select m.id, m.added, m.iid, m.delayed_until, m.expires, m.received,
         coalesce(m.headers, m.constants::hstore || hstore('enqueue_time', m.added::text)), m.properties, m.data, m.token, m.attempt, m.leased_until
  from mbus.leasen_sample_by_default(amt, ttl) m;
end $function$

CREATE OR REPLACE FUNCTION mbus.leasen_sample_by_default(amt integer, ttl interval)
 RETURNS TABLE(id bigint, added timestamp with time zone, iid text, delayed_until timestamp with time zone, expires timestamp with time zone, received integer[], headers hstore, properties hstore, data hstore, constants text, token bigint, attempt integer, leased_until timestamp with time zone)
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 100
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_until constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
begin
  return query
  with held as (
    insert into mbus.leased as h
      (queue_id, consumer_id, group_name, leased_until, number, added, expires, headers, properties, trail, data_hstore)
    select 7000, 8000, p.headers -> 'group', v_until, p.number, p.added, p.expires, p.headers,
           p.properties, mbus._tried(p.trail), p.data_hstore
    from mbus._take_sample_by_default($1) p
    returning h.*)
  select h.number, h.added, 'sample.' || h.number || '@node', (h.trail ->> 'delayed_until')::timestamptz,
         h.expires, null::integer[], mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, h.added, h.headers,
           h.trail || jsonb_build_object('attempts', mbus._attempts(h.trail) - 1)),
         h.properties, h.data_hstore, '"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::text, h.token, (h.trail ->> 'attempts')::integer, h.leased_until
  from held h order by h.token;
end $function$

CREATE OR REPLACE FUNCTION mbus.peek_sample(msgid text DEFAULT NULL::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
begin
  return mbus._has(7000, case when $1 is not null then mbus._number('sample', $1) end);
exception when sqlstate 'MB009' then
  return false;
end $function$

CREATE OR REPLACE FUNCTION mbus.post_sample(data hstore, headers hstore DEFAULT NULL::hstore, properties hstore DEFAULT NULL::hstore, delayed_until timestamp with time zone DEFAULT NULL::timestamp with time zone, expires timestamp with time zone DEFAULT NULL::timestamp with time zone, iid text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_parcel     mbus.parcel;
  v_accepted   record;
  v_generation bigint;
  v_id         bigint;
begin
  if $2 is null and $4 is null and $5 is null and $6 is null then
    -- The common case; see mbus._put_sample for why the insert checks the head.
    v_id := nextval('mbus."qs$sample$position"');
    loop
      v_generation := pg_sequence_last_value('mbus."qs$sample$tail"');
      case v_generation % 2
      when 2 then
        insert into mbus."qt$sample$h0" (id, added, data, properties)
        select v_id, mbus.now(), $1, $3 where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

      when 3 then
        insert into mbus."qt$sample$h1" (id, added, data, properties)
        select v_id, mbus.now(), $1, $3 where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

      when 0 then
        insert into mbus."qt$sample$0" (id, added, data, properties)
        select v_id, mbus.now(), $1, $3 where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

      when 1 then
        insert into mbus."qt$sample$1" (id, added, data, properties)
        select v_id, mbus.now(), $1, $3 where pg_sequence_last_value('mbus."qs$sample$head"') <= v_generation;

      end case;
      exit when found;
    end loop;
    return 'sample.' || v_id || '@node';

  end if;
  v_parcel := row(null, mbus.now(), $5, $2, $3, null, null, $1, null, null, null)::mbus.parcel;
  select * into v_accepted from mbus._accept(7000, v_parcel, $4, $6);
  -- For a row, "is not null" would mean that every column has a value.
  if not v_accepted.parcel is null then    -- neither set aside nor a repetition
    v_accepted.number := mbus._put_sample(v_accepted.parcel);
  end if;
  return 'sample.' || v_accepted.number || '@node';

end $function$

CREATE OR REPLACE FUNCTION mbus.postn_sample(data hstore[], headers hstore[] DEFAULT NULL::hstore[], properties hstore[] DEFAULT NULL::hstore[], delayed_until timestamp with time zone DEFAULT NULL::timestamp with time zone, expires timestamp with time zone DEFAULT NULL::timestamp with time zone)
 RETURNS text[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_count      constant integer := coalesce(cardinality($1), 0);
  v_headers    hstore[] := case when $2 is not null then mbus._spread('headers', $2, v_count) end;
  v_properties constant hstore[] := case when $3 is not null then mbus._spread('properties', $3, v_count) end;
  v_now        constant timestamptz := mbus.now();
  v_one_by_one boolean;
  v_generation bigint;
  v_ids        bigint[];

begin
  if $4 is not null or $5 is not null then
    perform mbus._check_expiry($4, $5);
  end if;
  -- Messages that need individual decisions are posted one by one.  The arrays of the others are not read by subscript: in a custom plan
  -- they are constants, and a subscript walks over all texts before its own.
  v_one_by_one := $4 is not null
    or $2 is not null and exists (
    select from unnest($2) h where h ?| '{priority,dedup_key,unique_key,debounce,consume_after}'
      or h ? 'group' and (not true or octet_length(h -> 'group') > 500));
  if not v_one_by_one then
    v_ids := array(select nextval('mbus."qs$sample$position"') from generate_series(1, v_count));
    if $2 is not null and exists (select from unnest($2) h where h ? 'reply_to') then
      v_headers := array(
        select case when m.headers ? 'reply_to'
                    then mbus._correlate(m.headers, 'sample.' || m.id || '@node', $5) else m.headers end
        from unnest(v_ids, v_headers) with ordinality m(id, headers, place) order by m.place);
    end if;
    if $2 is not null and exists (select from unnest($2) h where h ? 'seenby') then
      v_headers := mbus._seen_all(v_headers);
    end if;

  end if;
  if v_one_by_one then
    return array(
      select mbus.post_sample(m.data, m.headers, m.properties, $4, $5)
      from unnest($1, v_headers, v_properties) with ordinality m(data, headers, properties, place)
      order by m.place);
  end if;
  loop
    exit when v_count = 0;
    v_generation := pg_sequence_last_value('mbus."qs$sample$tail"');
    case v_generation % 2
    when 2 then
      insert into mbus."qt$sample$h0" (id, added, data, headers, properties, expires)
      select unnest(v_ids), v_now, unnest($1), unnest(v_headers), unnest(v_properties), $5
      where (select pg_sequence_last_value('mbus."qs$sample$head"')) <= v_generation;

    when 3 then
      insert into mbus."qt$sample$h1" (id, added, data, headers, properties, expires)
      select unnest(v_ids), v_now, unnest($1), unnest(v_headers), unnest(v_properties), $5
      where (select pg_sequence_last_value('mbus."qs$sample$head"')) <= v_generation;

    when 0 then
      insert into mbus."qt$sample$0" (id, added, data, headers, properties, expires)
      select unnest(v_ids), v_now, unnest($1), unnest(v_headers), unnest(v_properties), $5
      where (select pg_sequence_last_value('mbus."qs$sample$head"')) <= v_generation;

    when 1 then
      insert into mbus."qt$sample$1" (id, added, data, headers, properties, expires)
      select unnest(v_ids), v_now, unnest($1), unnest(v_headers), unnest(v_properties), $5
      where (select pg_sequence_last_value('mbus."qs$sample$head"')) <= v_generation;

    end case;
    exit when found;
  end loop;
  return array(select 'sample.' || id || '@node' from unnest(v_ids) id);
end $function$

CREATE OR REPLACE FUNCTION mbus.take_from_sample_by_default(msgid text)
 RETURNS SETOF mbus.qt_model
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 1
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_number constant bigint := mbus._number('sample', $1);
  v_copies constant mbus.parcel[] := array(select p from mbus._take_number(7000, 8000, v_number) p);
begin
  if v_copies = '{}' then return; end if;
  perform mbus._note_taken(v_copies);
  perform mbus._tally(8000, 'consumed', 1);
  perform mbus._taken(7000, 8000, v_number);
  return query
  select p.number, p.added, $1, (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, p.added, p.headers, p.trail),
         p.properties, p.data_hstore
  from unnest(v_copies) p;
end $function$

CREATE OR REPLACE FUNCTION mbus.take_sample(iid text)
 RETURNS SETOF mbus.qt_model
 LANGUAGE plpgsql
 SECURITY DEFINER ROWS 1
 SET search_path TO 'pg_catalog', 'mbus', 'public', 'pg_temp'
AS $function$
declare
  v_number constant bigint := mbus._number('sample', $1);
  v_copies constant mbus.parcel[] := array(select p from mbus._take_number(7000, null, v_number) p);
begin
  if v_copies = '{}' then
    perform mbus._saga_missed(7000, v_number);
    return;
  end if;
  perform mbus._note_taken(v_copies);
  perform mbus._taken(7000, null, v_number);
  return query
  select p.number, p.added, $1, (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver('"seenby"=>"{database}", "source_db"=>"database", "destination"=>"sample"'::hstore, p.added, p.headers, p.trail),
         p.properties, p.data_hstore
  from unnest(v_copies) p limit 1;
end $function$
