-- Writes messages of the batch just taken that the other end refuses permanently to the dead message queue of their consumer, in
-- the transaction that took them.  They keep their iids; mbus.redrive sends them again.
-- p_places: the positions of these messages in the batch, from 1; the arrays are those that bridge.take returned.
create or replace function bridge.bury(
  p_outlet text, p_places integer[], p_errors text[],
  p_iids text[], p_data text[], p_headers text[], p_properties text[], p_expires timestamptz[])
returns integer
language plpgsql security definer set search_path from current as $$
declare
  v_outlet   constant bridge.outlet := bridge._outlet(p_outlet);
  v_queue    mbus.queue;
  v_consumer integer;
  v_place    integer;
  v_parcel   mbus.parcel;
begin
  select * into v_queue from mbus.queue q where q.name = v_outlet.queue;
  select c.id into v_consumer from mbus.consumer c where c.queue_id = v_queue.id and c.name = v_outlet.consumer;
  for v_number in 1 .. coalesce(cardinality(p_places), 0) loop
    v_place := p_places[v_number];
    v_parcel := null;
    v_parcel.added := bridge._enqueued(p_headers[v_place]::hstore);
    v_parcel.expires := p_expires[v_place];
    -- The headers that bridge.take added are removed.
    v_parcel.headers := p_headers[v_place]::hstore - '{source_iid,seenby_nodes}'::text[];
    v_parcel.properties := p_properties[v_place]::hstore;
    case v_queue.payload
      when 'hstore' then v_parcel.data_hstore := p_data[v_place]::hstore;
      when 'jsonb' then v_parcel.data_jsonb := p_data[v_place]::jsonb;
      when 'text' then v_parcel.data_text := p_data[v_place];
      when 'bytea' then v_parcel.data_bytea := p_data[v_place]::bytea;
    end case;
    perform mbus._bury(v_consumer, v_parcel,
      split_part(split_part(p_iids[v_place], '.', 2), '@', 1)::bigint, p_errors[v_number]);
  end loop;
  return coalesce(cardinality(p_places), 0);
end $$;

-- When a message was first posted, if its header holds a time: a client may have written something else there.
create or replace function bridge._enqueued(p_headers hstore) returns timestamptz
language plpgsql stable set search_path from current as $$
begin
  return coalesce((p_headers -> 'enqueue_time')::timestamptz, bridge.now());
exception when data_exception then
  return bridge.now();
end $$;
