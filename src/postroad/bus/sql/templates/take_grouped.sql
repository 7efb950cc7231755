-- As mbus._take of a queue without groups, but of each group only the first message is taken, and none
-- while this consumer holds another message of that group.
--
-- Locks: an advisory lock per group (consumer id, hash of the group), without waiting, then the rows.
-- The groups are locked in one statement and the rows read in the next, whose snapshot therefore
-- sees all that the last holder of the group has done.
create or replace function mbus.{function}({arguments}) returns {returns}
language plpgsql security definer rows 100
set search_path from current set enable_seqscan = off set jit = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_missing    integer;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_from       bigint;
  v_found      bigint;
  v_tally      bigint;
  v_setting    text;
  v_row        record;
  v_ids        bigint[];
  v_seen       text[];
  v_retries    mbus.parcel[];
begin
  -- The checks are called only to raise, and the queue is attended only when no maintenance runs.
  if amt is null or amt < 0 then
    perform mbus._check_amount(amt);
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform mbus._check_isolation();
  end if;
  if extract(epoch from v_now) - pg_sequence_last_value('mbus.attended') >= 2 then
    perform mbus._attend({queue_id}, {consumer_id}, amt);
  end if;
{paused}  -- Retries of a group come first: they are older than whatever of that group is on the ring.
  v_retries := array(select p from mbus._take_group_retries({queue_id}, {consumer_id}, amt) p);
  v_missing := amt - cardinality(v_retries);
  if v_missing < amt then
    -- Locks storage of the consumer, which nothing below may touch: drop_consumer waits for this transaction.
    perform pg_sequence_last_value('mbus.{hint}');
  end if;
{note_retries}  v_seen := array(select r.headers -> 'group' from unnest(v_retries) r);
  return query
  select {output}
  from (select r.number as id, null::bigint as origin, r.added, r.expires, r.headers, r.properties, r.trail,
               r.{data} as data from unnest(v_retries) r) g
  order by g.id;
  foreach v_lane in array {lane_order}::integer[] loop
    v_tail := pg_sequence_last_value('mbus.{tail}');
    for v_generation in pg_sequence_last_value('mbus.{head}') .. v_tail loop
      v_from := 0;
      while v_from is not null and v_missing > 0 loop
        v_ids := '{}';
        case v_generation % {slots} + {slots} * v_lane
{branches}
        end case;
        get diagnostics v_found = row_count;
        v_missing := v_missing - v_found;
      end loop;
    end loop;
  end loop;
{tally}end $function$;
