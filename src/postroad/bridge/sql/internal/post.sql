-- Posts messages in order, in the caller's transaction.  A message that the queue refuses permanently (an unknown header, an
-- invalid payload) does not block the others: its place and the error are returned.
create or replace function bridge._post(
  p_queue text, p_payload text, p_data text[], p_headers text[], p_properties text[],
  p_expires timestamptz[], p_delayed timestamptz[], out places integer[], out errors text[])
language plpgsql set search_path from current as $$
declare
  v_expires timestamptz := p_expires[1];
begin
  if cardinality(p_data) = 0 then return; end if;
  -- In one call, if all messages expire at the same time and none has a delay.
  if array_remove(p_delayed, null) = '{}' and array_remove(p_expires, v_expires) = '{}' then
    begin
      execute format('select mbus.%I($1::%s[], $2::hstore[], $3::hstore[], null, $4)', 'postn_' || p_queue, p_payload)
      using p_data, p_headers, p_properties, v_expires;
      return;
    exception when others then
      -- One of the messages is refused: the loop below finds out which.
      perform bridge._pass_on(sqlstate, sqlerrm);
    end;
  end if;
  -- One by one, each in a subtransaction if one of them was refused.
  begin
    perform bridge._post_one(p_queue, p_payload, p_data[p], p_headers[p], p_properties[p], p_expires[p], p_delayed[p])
    from generate_series(1, cardinality(p_data)) p;
    return;
  exception when others then
    perform bridge._pass_on(sqlstate, sqlerrm);
  end;
  for v_place in 1 .. cardinality(p_data) loop
    begin
      perform bridge._post_one(p_queue, p_payload, p_data[v_place], p_headers[v_place], p_properties[v_place],
                               p_expires[v_place], p_delayed[v_place]);
    exception when others then
      perform bridge._pass_on(sqlstate, sqlerrm);
      places := places || v_place;
      errors := errors || format('%s: %s', sqlstate, sqlerrm);
    end;
  end loop;
end $$;

create or replace function bridge._post_one(
  p_queue text, p_payload text, p_data text, p_headers text, p_properties text, p_expires timestamptz, p_delayed timestamptz)
returns void
language plpgsql set search_path from current as $$
begin
  execute format('select mbus.%I($1::%s, $2::hstore, $3::hstore, $4, $5)', 'post_' || p_queue, p_payload)
  using p_data, p_headers, p_properties, p_delayed, p_expires;
end $$;

-- Raises an error again unless the message caused it: an argument that the bus refuses, invalid data (22…), or text that is not valid for its type.
create or replace function bridge._pass_on(p_state text, p_message text) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_state not in ('MB010', 'MB011', 'MB012') and p_state not like '22%' and p_state not in ('42601', 'XX000') then
    raise exception '%', p_message using errcode = p_state;
  end if;
end $$;
