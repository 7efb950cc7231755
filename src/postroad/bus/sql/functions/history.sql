-- Shows up to amt messages that were posted in a time and are stored, consumed or not, in order of posting: those on the queue's ring,
-- and with mbus.alter_queue(retain => …) those of retained segments.  A message that was put back, redriven or replayed is shown once per
-- copy.
--   selector  a condition over t, as of a consumer
--   place     only messages after this one: the column id of the last message shown
-- Read-only.  Errors: MB001, MB008 selector, MB012 amt.
create or replace function mbus.history(
  qname text, since timestamptz default '-infinity', until timestamptz default 'infinity', selector text default null,
  amt integer default 1000, place bigint default 0)
returns table (id bigint, iid text, added timestamptz, expires timestamptz, attempts integer, headers hstore, properties hstore, data text)
language plpgsql security definer set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_queue constant mbus.queue := mbus._queue(qname);
  v_first constant integer := (select min(c.id) from mbus.consumer c where c.queue_id = v_queue.id);
begin
  perform mbus._check_amount(amt);
  perform mbus._check_selector(v_queue, selector);
  return query execute format('select t.id, t.iid, t.added, t.expires, t.attempts, t.headers, t.properties, t.data::text from (%s) t where %s
                               order by t.id limit $5',
    mbus._stored_messages(v_queue, v_first, since, until, place, is_consumed => false), coalesce('(' || selector || e'\n)', 'true'))
  using qname, place, since, until, amt;
end $$;
