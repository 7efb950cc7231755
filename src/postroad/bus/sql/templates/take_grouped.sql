-- As mbus._take of a queue without groups, but of each group only the first message is taken, and none
-- while another of that group is in the hands of this consumer.
--
-- Locks: an advisory lock per group (consumer id, hash of the group), without waiting, then the rows.
-- The groups are locked in one statement and the rows looked at in the next, whose snapshot therefore
-- sees all that the last holder of the group has done.
create or replace function mbus._take_{queue}_by_{consumer}(p_amount integer) returns setof mbus.parcel
language plpgsql security definer
set search_path from current set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_missing    integer := p_amount;
  v_now        constant timestamptz := mbus.now();
  v_lane       integer;
  v_tail       bigint;
  v_from       bigint;
  v_found      bigint;
  v_row        record;
  v_ids        bigint[];
  v_seen       text[] := '{}';
  v_parcel     mbus.parcel;
begin
  perform mbus._check_amount(p_amount);
  perform mbus._check_isolation();
  perform mbus._attend({queue_id}, p_amount);
  -- Retries of a group come first: they are older than whatever of that group is on the ring.
  for v_parcel in select * from mbus._take_group_retries({queue_id}, {consumer_id}, p_amount) loop
    v_missing := v_missing - 1;
    v_seen := v_seen || (v_parcel.headers -> 'group');
    return next v_parcel;
  end loop;
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
end $function$;
