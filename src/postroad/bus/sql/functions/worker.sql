-- Records a handler of a running worker, which calls it every few seconds; with a concurrency of 0 the handler has stopped.
-- Deletes handlers that have not reported for a day.  iids: the messages that it has leased.
-- Errors: MB001, MB002, MB013 role.  Locks: the handler's row.
create or replace function mbus.report_worker(
  qname text, cname text, worker text, host text, pid integer, mode text, concurrency integer, iids text[]) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._queue(qname);
  v_consumer constant mbus.consumer := mbus._consumer(v_queue, coalesce(cname, 'null'));
  v_now      constant timestamptz := mbus.now();
begin
  perform mbus._check_consume(v_queue, cname);
  delete from mbus.worker w
  where w.id = $3 and w.consumer_id = v_consumer.id and coalesce($7, 0) = 0 or w.seen_at < v_now - interval '1 day';
  if coalesce($7, 0) = 0 then return; end if;
  insert into mbus.worker as w (id, consumer_id, host, pid, mode, concurrency, started_at, seen_at, held)
  values ($3, v_consumer.id, left($4, 200), $5, left($6, 20), $7, v_now, v_now,
          (select coalesce(jsonb_object_agg(u.iid, v_now), '{}') from (select unnest($8) as iid limit 1000) u where u.iid is not null))
  on conflict (id) do update
  set concurrency = excluded.concurrency, seen_at = excluded.seen_at,
      held = (select coalesce(jsonb_object_agg(u.key, coalesce(w.held -> u.key, u.value)), '{}') from jsonb_each(excluded.held) u)
  where w.consumer_id = excluded.consumer_id;
end $$;
