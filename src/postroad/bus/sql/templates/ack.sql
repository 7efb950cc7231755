-- Consumes leased messages of one consumer.  Returns the tokens of leases that had ended; the others are consumed.
-- Errors: MB012 arguments.
-- An index of one column serves each half of the condition, so only bitmap scans are of use here.
create or replace function mbus.ackn_{queue}_by_{consumer}(iids text[], tokens bigint[]) returns bigint[]
language plpgsql security definer set search_path from current set enable_seqscan = off set enable_indexscan = off
set jit = off set plan_cache_mode = force_generic_plan
as $function$
declare
  v_now     constant timestamptz := mbus.now();
  v_numbers constant bigint[] := array(
    select case when ltrim(m.digits, '0123456789') = '' and left(m.digits, 1) <> '0' and length(m.digits) between 1 and 18
                  and i = '{queue}.' || m.digits || '@{node}' then m.digits::bigint end
    from unnest(iids) i cross join lateral (select split_part(substr(i, length('{queue}.') + 1), '@', 1) as digits offset 0) m);
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
    if v_cell % {slots} <= pg_sequence_last_value('mbus.{tail}') then
    case v_cell
{branches}
    else null;
    end case;
    end if;
    v_acked := v_acked || v_found;
    exit when cardinality(v_acked) = cardinality(tokens);
    v_left := array(select t from unnest(v_left) t where t & 1023 is distinct from v_cell);
  end loop;
  v_count := cardinality(v_acked);
{tally}{done}  if v_count < cardinality(tokens) then
    return mbus._ack_moved({queue_id}, {consumer_id}, v_numbers, tokens, v_acked);
  end if;
  return '{}';
end $function$;
