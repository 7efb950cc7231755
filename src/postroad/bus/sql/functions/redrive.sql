-- Makes up to amt dead messages ready for their consumers again, in order of posting; resets their attempts and keeps their
-- history; returns their number.  Redrives the messages of a queue, of one of its consumers, or one message.  Call it again until it
-- returns 0, each time in its own transaction.  Expired messages would not be delivered: they stay in the dmq, for mbus.take or mbus.purge.
--   died_before  omits messages that died later, so that repeated calls end even if consumers fail again
-- Locks: the rows; rows that another transaction holds are skipped.
-- Errors: MB001, MB002, MB009 foreign iid, MB012 amt.
create or replace function mbus.redrive(
  qname text, cname text default null, iid text default null, amt integer default 1000, died_before timestamptz default null) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer integer;
  v_number   bigint;
begin
  perform mbus._check_amount(amt);
  if cname is not null then v_consumer := (mbus._consumer(v_queue, cname)).id; end if;
  if iid is not null then v_number := mbus._number(qname, iid); end if;
  return mbus.redrive_dead(array(
    select w.id from mbus.dmq w
    where w.queue_id = v_queue.id and (v_consumer is null or w.consumer_id = v_consumer)
      and (v_number is null or w.number = v_number)
      and (w.expires is null or w.expires > mbus.now()) and (died_before is null or w.died_at <= died_before)
    order by w.number limit amt for update skip locked));
end $$;
