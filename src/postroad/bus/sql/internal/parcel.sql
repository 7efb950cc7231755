-- A row of delayed, blocked, leased or dmq as a parcel.
create or replace function mbus._parcel(p_row anyelement) returns mbus.parcel
language plpgsql stable set search_path from current as $$
declare
  v_recipients integer[];
begin
  if pg_typeof(p_row) = any ('{mbus.delayed,mbus.blocked}'::regtype[]) then v_recipients := p_row.recipients; end if;
  return row(p_row.number, p_row.added, p_row.expires, p_row.headers, p_row.properties, p_row.trail, v_recipients,
             p_row.data_hstore, p_row.data_jsonb, p_row.data_text, p_row.data_bytea)::mbus.parcel;
end $$;

-- The parcel with this data in the column of its type.  Raises MB011 for a type that no queue carries.
create or replace function mbus._load(p_parcel mbus.parcel, p_data anyelement) returns mbus.parcel
language plpgsql stable set search_path from current as $$
begin
  case mbus._type_of(pg_typeof(p_data))
    when 'hstore' then p_parcel.data_hstore := p_data;
    when 'jsonb' then p_parcel.data_jsonb := p_data;
    when 'text' then p_parcel.data_text := p_data;
    when 'bytea' then p_parcel.data_bytea := p_data;
    else perform mbus._check_payload(pg_typeof(p_data));
  end case;
  return p_parcel;
end $$;

-- The headers as a consumer gets them.  Those of a forwarded message take precedence over this database's own, except for the destination
-- and the number of attempts.
create or replace function mbus._deliver(p_constants hstore, p_added timestamptz, p_headers hstore, p_trail jsonb) returns hstore
language sql stable parallel safe
return case
  when p_headers is null and p_trail is null
    then p_constants || hstore('enqueue_time', p_added::text)
  else p_constants || hstore('enqueue_time', p_added::text) || delete(coalesce(p_headers, ''::hstore), 'attempts'::text)
       || hstore('destination', p_constants -> 'destination')
       || case when mbus._attempts(p_trail) > 0 then hstore('attempts', p_trail ->> 'attempts') else ''::hstore end
end;

-- Puts many messages on a queue that is known by its id only.
create or replace function mbus._put_many(p_queue_id integer, p_parcels mbus.parcel[]) returns void
language plpgsql set search_path from current as $$
declare
  v_name text;
begin
  if p_parcels is null then return; end if;
  select name into v_name from mbus.queue where id = p_queue_id;
  execute format('select mbus.%I(p) from unnest($1) p', '_put_' || v_name) using p_parcels;
end $$;

-- For a session that still runs the put function from before the queue got a lane.  Locking a table that is new to the transaction makes
-- the session detect the change, so the next call runs the new function.
create or replace function mbus._put_again(p_queue text, p_lane integer, p_parcel mbus.parcel) returns bigint
language plpgsql set search_path from current as $$
declare
  v_queue  mbus.queue := mbus._queue(p_queue);
  v_number bigint;
begin
  if current_setting('mbus.put_again', true) = p_queue then
    raise exception 'queue "%" has changed since this transaction began', p_queue
      using errcode = 'MB017', hint = 'Roll back and repeat the transaction.';
  end if;
  execute format('lock table mbus.%I in row exclusive mode', mbus._log_name(
    v_queue, ('{normal,high,low}'::text[])[p_lane + 1], mbus._figure(p_queue, 'tail') % v_queue.slots));
  perform set_config('mbus.put_again', p_queue, true);
  execute format('select mbus.%I($1)', '_put_' || p_queue) into v_number using p_parcel;
  perform set_config('mbus.put_again', '', true);
  return v_number;
end $$;
