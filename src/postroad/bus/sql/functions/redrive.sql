-- Gives dead messages back to their consumers with their attempts forgotten and their history kept.
-- Of one queue, of one of its consumers, or one message.  Returns how many.
create or replace function mbus.redrive(qname text, cname text default null, iid text default null) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer integer;
  v_number   bigint;
  v_row      mbus.dmq;
  v_count    bigint := 0;
begin
  if cname is not null then v_consumer := (mbus._consumer(v_queue, cname)).id; end if;
  if iid is not null then v_number := mbus._number(qname, iid); end if;
  for v_row in
    delete from mbus.dmq d
    where d.queue_id = v_queue.id and (v_consumer is null or d.consumer_id = v_consumer)
      and (v_number is null or d.number = v_number)
    returning d.*
  loop
    perform mbus._put(v_queue.id, row(v_row.number, v_row.added, v_row.expires, v_row.headers, v_row.properties,
      v_row.trail - 'attempts', array[v_row.consumer_id],
      v_row.data_hstore, v_row.data_jsonb, v_row.data_text, v_row.data_bytea)::mbus.parcel);
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;
