-- Removes up to p_amount messages of one consumer in the caller's transaction and returns them, lane
-- by lane, generation by generation, in order of posting.
--
-- Locks: the rows, without waiting (rows that another transaction holds are skipped).
-- The hint of a table is a settled mark: no message with a smaller id is in it or can still appear.
create or replace function mbus._take_{queue}_by_{consumer}(p_amount integer) returns setof mbus.parcel
language plpgsql security definer
set search_path from current set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_missing    integer := p_amount;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_hint       bigint;
  v_found      bigint;
begin
  perform mbus._check_amount(p_amount);
  perform mbus._check_isolation();
  perform mbus._attend({queue_id}, p_amount);
  foreach v_lane in array {lane_order}::integer[] loop
    v_tail := pg_sequence_last_value('mbus.{tail}');
    for v_generation in pg_sequence_last_value('mbus.{head}') .. v_tail loop
      exit when v_missing <= 0;
      case v_generation % {slots} + {slots} * v_lane
{branches}
      end case;
      get diagnostics v_found = row_count;
      v_missing := v_missing - v_found;
    end loop;
  end loop;
end $function$;
