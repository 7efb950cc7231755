-- Deletes the messages whose leases are still held and returns their tokens.  A lease that was moved to another cell is
-- left to mbus._answer.
-- An index of one column serves each half of the condition, so only bitmap scans are of use here.
create or replace function mbus._ack_{queue}_by_{consumer}(p_numbers bigint[], p_tokens bigint[]) returns bigint[]
language plpgsql set search_path from current set enable_seqscan = off set enable_indexscan = off
set jit = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_now   constant timestamptz := mbus.now();
  v_cell  integer;
  v_found bigint[];
  v_acked bigint[] := '{}';
begin
  for v_cell in select distinct t & 1023 from unnest(p_tokens) t loop
    v_found := null;
    case v_cell
{branches}
    else null;
    end case;
    v_acked := v_acked || v_found;
  end loop;
  return v_acked;
end $function$;
