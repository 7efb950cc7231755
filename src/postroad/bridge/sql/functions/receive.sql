-- Posts a batch that has arrived, each message once: messages that are already in the ledger are dropped.  Ledger and messages are written
-- in the caller's transaction.  Idempotent.
-- p_ids: the first iid of each message, or the id that its sender gave it; null is not recorded.
-- p_batch is null for a broker, which has no batches; p_position is the offset of a stream after this batch.
-- refused, errors: the places of messages that the queue does not take, and why.  Errors: MR001, MB001.
create or replace function bridge.receive(
  p_inlet text, p_source text, p_batch bigint, p_ids text[], p_data text[], p_headers text[], p_properties text[],
  p_expires timestamptz[], p_delayed timestamptz[], p_position bigint default null)
returns table (posted integer, dropped integer, refused integer[], errors text[])
language plpgsql security definer set search_path from current as $$
declare
  v_inlet   constant bridge.inlet := bridge._inlet(p_inlet, p_source);
  v_payload constant text := bridge._payload(v_inlet.queue);
  v_count   constant integer := coalesce(cardinality(p_ids), 0);
  v_new     boolean[];
  v_places  integer[];
begin
  posted := 0; dropped := 0; refused := '{}'; errors := '{}';
  if v_count = 0 then
    -- Nothing can be posted, but the stream has been read up to this position.
    if p_position is not null then
      insert into bridge.arrived (inlet_id, arrived_at, position) values (v_inlet.id, bridge.now(), p_position);
    end if;
    return next;
    return;
  end if;
  v_new := bridge._accept(v_inlet, p_batch, p_ids);
  if p_batch is null then
    -- Drops messages that were posted here before; bridge.take does that for messages of a database.
    select array_agg(u.is_new and not coalesce(h.here = any (bridge._journey(u.headers::hstore)), false) order by u.place) into v_new
    from unnest(v_new, p_headers) with ordinality u(is_new, headers, place) cross join bridge._here() h(here);
  end if;
  if not false = any (v_new) then
    select r.places, r.errors into refused, errors
    from bridge._post(v_inlet.queue, v_payload, p_data, p_headers, p_properties, p_expires, p_delayed) r;
  else
    v_places := array(select place::integer from unnest(v_new) with ordinality u(is_new, place) where is_new order by place);
    select array(select v_places[p] from unnest(r.places) p), r.errors into refused, errors
    from bridge._post(v_inlet.queue, v_payload,
      array(select p_data[p] from unnest(v_places) p), array(select p_headers[p] from unnest(v_places) p),
      array(select p_properties[p] from unnest(v_places) p), array(select p_expires[p] from unnest(v_places) p),
      array(select p_delayed[p] from unnest(v_places) p)) r;
    dropped := v_count - cardinality(v_places);
  end if;
  if refused is not null then perform bridge._unsee(v_inlet.queue, array(select p_ids[p] from unnest(refused) p)); end if;
  refused := coalesce(refused, '{}'); errors := coalesce(errors, '{}');
  posted := v_count - dropped - cardinality(refused);
  if p_batch is null then
    insert into bridge.arrived (inlet_id, arrived_at, posted, dropped, refused, position)
    values (v_inlet.id, bridge.now(), receive.posted, receive.dropped, cardinality(receive.refused), p_position);
  end if;
  return next;
end $$;
