    when {cell} then
      insert into mbus.{log} (id, added, data, headers, properties, expires)
      select m.id, v_now, m.data, m.headers, m.properties, $5
      from unnest(v_ids, $1, v_headers, v_properties) m(id, data, headers, properties)
      where pg_sequence_last_value('mbus.{head}') <= v_generation;
