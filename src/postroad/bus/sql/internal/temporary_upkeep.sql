-- Keeps the ring of the temporary queues small.  Called by mbus.maintain; see also mbus.clear_tempq.
--
-- Life of a table: free (life 0, no pages) -> tail -> sealed -> empty (life 0) -> truncated -> free.

-- A table is sealed when it has grown to this size, or after a minute if it contains anything.
create or replace function mbus._tempq_bytes() returns bigint
language sql immutable parallel safe return 2097152;

-- To be called before anything is written in the transaction: sequences do not roll back, so a table that is empty only
-- because of our own deletes must not be released.
-- Locks: an advisory lock, tried; then those of the steps.
create or replace function mbus._maintain_temporary() returns bigint
language plpgsql set search_path from current as $$
declare
  v_is_first constant boolean := pg_current_xact_id_if_assigned() is null;
  v_sealed   integer[];
  v_slot     integer;
begin
  if not pg_try_advisory_xact_lock(mbus._session_class(), 0) then return 0; end if;
  v_sealed := array(
    select s from generate_series(0, 2) s
    where s <> pg_sequence_last_value('mbus.tempq_tail') % 4 and pg_relation_size(format('mbus.tempq_%s', s)::regclass) > 0);
  if v_is_first then
    perform mbus._seal_off_tempq(s) from unnest(v_sealed) s where mbus._tempq_life(s) > 0;
    perform mbus._truncate_tempq(s) from unnest(v_sealed) s where mbus._tempq_life(s) = 0;
  end if;
  perform mbus._rotate_tempq();
  foreach v_slot in array v_sealed loop
    continue when mbus._tempq_life(v_slot) = 0;
    -- Deletes expired messages, and messages that arrived while their queue was being removed.
    execute format('delete from mbus.tempq_%s s where s.ctid = any (array(
                      select r.ctid from mbus.tempq_%1$s r
                      where r.expires <= mbus.now() or not exists (select from mbus.temporary_queue q where q.name = r.destination)
                      for update skip locked))', v_slot);
  end loop;
  return case when exists (select from mbus.temporary_queue) then mbus.clear_tempq() else 0 end;
end $$;

create or replace function mbus._tempq_life(p_slot integer) returns bigint
language sql volatile set search_path from current as $$ select pg_sequence_last_value(format('mbus.tempq_life_%s', p_slot)::regclass) $$;

-- Makes a free table the tail once the current one is full or old.
create or replace function mbus._rotate_tempq() returns void
language plpgsql set search_path from current as $$
declare
  v_tail constant bigint := pg_sequence_last_value('mbus.tempq_tail');
  v_size constant bigint := pg_relation_size(format('mbus.tempq_%s', v_tail % 4)::regclass);
  v_now  constant bigint := extract(epoch from mbus.now())::bigint;
  v_free integer;
  v_slots integer[];
  v_count bigint;
begin
  if v_size = 0 or v_size < mbus._tempq_bytes() and v_now - pg_sequence_last_value('mbus.tempq_opened') < 60 then
    return;
  end if;
  select s into v_free from generate_series(0, 2) s
  where mbus._tempq_life(s) = 0 and pg_relation_size(format('mbus.tempq_%s', s)::regclass) = 0 limit 1;
  if v_free is null then
    v_slots := array(select * from mbus._tempq_slots());
    if cardinality(v_slots) < 3 then return; end if;
    -- If every table is in use, moves the remaining rows of the oldest into the next one, from which messages are then taken first.
    execute format('select count(*) from (select from mbus.tempq_%s limit 5001) s', v_slots[1]) into v_count;
    if v_count > 5000 then return; end if;
    execute format('with gone as (delete from mbus.tempq_%s s where s.ctid = any (array(
                      select r.ctid from mbus.tempq_%1$s r for update skip locked)) returning s.*)
                    insert into mbus.tempq_%s select * from gone', v_slots[1], v_slots[2]);
    return;
  end if;
  -- Marked as in use first: sessions that see the new tail must be able to write and read there.
  perform setval(format('mbus.tempq_life_%s', v_free)::regclass, v_tail / 4 + 1);
  perform setval('mbus.tempq_tail', (v_tail / 4 + 1) * 4 + v_free);
  perform setval('mbus.tempq_opened', v_now);
end $$;

-- Ends the life of a sealed table that is empty, so that sessions no longer read it.  Locks: share on the table, tried.  Under it no
-- session writes there; one that waits to insert finds the life ended and writes to the tail.
create or replace function mbus._seal_off_tempq(p_slot integer) returns void
language plpgsql set search_path from current as $$
declare
  v_is_live boolean;
begin
  execute format('select exists (select from mbus.tempq_%s)', p_slot) into v_is_live;
  if v_is_live then return; end if;
  execute format('lock table mbus.tempq_%s in share mode nowait', p_slot);
  execute format('select exists (select from mbus.tempq_%s)', p_slot) into v_is_live;
  if v_is_live then
    raise lock_not_available;    -- gives the lock back
  end if;
  perform setval(format('mbus.tempq_life_%s', p_slot)::regclass, 0);
exception when lock_not_available then null;
end $$;

-- Locks: access exclusive on the table, tried.  Only sessions that began to read before its life ended hold it.
create or replace function mbus._truncate_tempq(p_slot integer) returns void
language plpgsql set search_path from current as $$
begin
  execute format('lock table mbus.tempq_%s in access exclusive mode nowait', p_slot);
  execute format('truncate mbus.tempq_%s', p_slot);
exception when lock_not_available then null;
end $$;
