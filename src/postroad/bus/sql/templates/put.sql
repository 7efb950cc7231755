-- Puts a message on the queue in the caller's transaction and returns its number.
--
-- Locks: row exclusive on one slot, until the end of the transaction; while it is held the slot is
-- not truncated.  Between reading the tail and getting that lock the slot may have been recycled, so the insert itself checks the head
-- under the lock, and inserts nothing into a recycled slot.
create or replace function mbus._put_{queue}(p_parcel mbus.parcel) returns bigint
language plpgsql security definer set search_path from current as $function$
declare
  v_id         constant bigint := nextval('mbus.{position}');
  v_number     constant bigint := coalesce(p_parcel.number, v_id);
  v_origin     constant bigint := nullif(v_number, v_id);
  v_lane       constant integer := case p_parcel.headers -> 'priority' when 'high' then 1 when 'low' then 2 else 0 end;
  v_recipients integer[];
  v_generation bigint;
begin
  if p_parcel.headers ? 'reply_to' then
    p_parcel.headers := mbus._correlate(p_parcel.headers, '{queue}.' || v_number || '@{node}', p_parcel.expires);
  end if;
{recipients}
  loop
    v_generation := pg_sequence_last_value('mbus.{tail}');
    case v_generation % {slots} + {slots} * v_lane
{branches}
    else
      -- This transaction began before the queue got that lane and still runs the old functions.
      p_parcel.number := v_number;
      return mbus._put_again('{queue}', v_lane, p_parcel);
    end case;
    exit when found;
  end loop;
  return v_number;
end $function$;
