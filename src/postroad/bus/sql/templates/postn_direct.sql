    when {cell} then
      insert into mbus.{log} (id, added, data, headers, properties, expires)
      select unnest(v_ids), v_now, unnest($1), unnest(v_headers), unnest(v_properties), $5
      where (select pg_sequence_last_value('mbus.{head}')) <= v_generation;
