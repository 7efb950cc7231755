-- {promise} up to amt messages of one consumer in the caller's transaction and returns them, lane by
-- lane, generation by generation, in order of posting.  A rollback or a lost connection gives them back immediately.
-- headers is null if it would only contain the constants and enqueue_time, which is the column added as text.
--
-- Locks: the rows, without waiting (rows that another transaction holds are skipped).
-- The hint of a table is a lower bound: no message with a smaller id can be taken from it, now or later.
create or replace function mbus.{function}({arguments}) returns {returns}
language plpgsql security definer rows 100
set search_path from current set enable_seqscan = off set jit = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_missing    integer := amt;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_found      bigint;
  v_tally      bigint;
  v_setting    text;
{declared}begin
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
{paused}{first}  foreach v_lane in array {lane_order}::integer[] loop
    v_tail := pg_sequence_last_value('mbus.{tail}');
    for v_generation in pg_sequence_last_value('mbus.{head}') .. v_tail loop
{slot}    end loop;
  end loop;
{tally}end $function$;
