-- Counts messages of one consumer that were consumed, died (into the dmq), expired or were rejected (to be retried).
-- The count is kept in a setting of the session, which a rollback restores, and is written to mbus.tally at most every three
-- seconds, so that a take needs no row.  A call with 0 writes the rest.  Counts that a session has not written when
-- it ends are lost: at most those of its last three seconds.  A negative count corrects an earlier one.
-- The setting is the time of the last write in seconds * 2^24 + the count since then.  templates/tally.sql does the same for the most
-- frequent case without calling this function.
create or replace function mbus._tally(p_consumer_id integer, p_kind text, p_count bigint) returns void
language plpgsql set search_path from current as $$
declare
  v_setting constant text := 'mbus.' || p_kind || '_' || p_consumer_id;
  v_now     constant timestamptz := mbus.now();
  v_second  constant bigint := extract(epoch from v_now);
  -- Any user can change a setting; in a session behind a pooler it may not be a number.
  v_text    constant text := current_setting(v_setting, true);
  v_kept    bigint := case when v_text ~ '^[0-9]{1,18}$' then v_text::bigint else 0 end + p_count;
begin
  if p_count < 0 then
    insert into mbus.tally (consumer_id, at, kind, messages) values (p_consumer_id, v_now, p_kind, p_count);
    return;
  end if;
  if v_kept % 16777216 = 0 then return; end if;
  if v_second - v_kept / 16777216 not between 0 and 2 then
    insert into mbus.tally (consumer_id, at, kind, messages) values (p_consumer_id, v_now, p_kind, v_kept % 16777216);
    v_kept := v_second * 16777216;
  end if;
  perform set_config(v_setting, v_kept::text, false);
end $$;
