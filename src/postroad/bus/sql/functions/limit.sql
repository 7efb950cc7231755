-- Limits of a consumer.  Calls of mbus._admit and mbus._choose are generated into its functions, so that the limits apply to every client
-- and other consumers have no extra cost.

-- Sets all limits of a consumer: a parameter that is not given means no limit.  Without parameters the limits are removed.
--   rate             messages taken or leased per second, on average
--   burst            maximum number taken together after a pause; default: the messages of one second, at least 1
--   concurrency      messages held at the same time: taken by open transactions, or leased
--   key              a property, or a header, by which messages are taken in turns: of each key the same number, if there are as many
--   key_rate         messages of one key per second; at most those of one second together, and at least 1
--   key_concurrency  messages of one key held at the same time
-- With key_rate or key_concurrency one open transaction at a time takes messages of a key.  A rollback restores key_rate, but not rate.
-- Taking by iid, and messages with a header group, do not follow key.
-- Locks: the queue's advisory lock; with key the queue's tables against posts, while they are indexed.
-- Errors: MB001, MB002, MB012 argument, or a consumer with a cursor, MB017 busy.
create or replace function mbus.limit_consumer(
  qname text, cname text, rate double precision default null, burst integer default null, concurrency integer default null,
  key text default null, key_rate double precision default null, key_concurrency integer default null) returns void
language plpgsql security definer set search_path from current set lock_timeout = '10s' as $$
declare
  v_queue    constant mbus.queue := mbus._alter((mbus._queue(qname)).id);
  v_consumer constant mbus.consumer := mbus._consumer(v_queue, cname);
  v_name     constant text := 'limit$' || v_consumer.id;
begin
  if v_consumer.contract = 'cursor' then perform mbus._refuse_cursor(qname, 'limits'); end if;
  if not coalesce(rate between 0.001 and 1e6, true) or not coalesce(key_rate between 0.001 and 1e6, true)
     or not coalesce(burst between 1 and 1000000, true) or not coalesce(concurrency between 1 and 1000, true)
     or not coalesce(key_concurrency between 1 and 1000, true) or key = '' or length(key) > 63
     or rate is null and burst is not null or key is null and coalesce(key_rate, key_concurrency) is not null then
    raise exception 'invalid limits'
      using errcode = 'MB012', hint = 'Rates lie between 0.001 and 1,000,000, concurrency between 1 and 1,000; burst needs rate, and limits per key need key.';
  end if;
  perform mbus._drop_limit(v_queue, v_consumer.id);
  if coalesce(rate, concurrency) is not null or key is not null then
    insert into mbus.consumer_limit
    values (v_consumer.id, $3, coalesce($4, greatest(1, ceil($3))), $5, $6, $7, $8);
    perform mbus._create_sequence(v_name);
    perform mbus._index_keys(v_queue);
  end if;
  perform mbus._generate(v_queue);
exception when lock_not_available or deadlock_detected then
  raise exception 'queue "%" is busy: a transaction that posts or takes is open', qname
    using errcode = 'MB017', hint = 'Try again, or find long transactions in pg_stat_activity.';
end $$;
