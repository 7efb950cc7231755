    when {cell} then
      insert into mbus.{log} (id, added, data, headers, properties, expires)
      select m.id, v_now, m.data, m.headers, m.properties, $5
      from (select generate_series(1, v_count) as place, unnest(v_ids) as id, unnest($1) as data, unnest(v_headers) as headers, unnest(v_properties) as properties) m
      where (select pg_sequence_last_value('mbus.{head}')) <= v_generation and ({any_hit});
      -- The slot is locked now, whether or not anything was stored: the head cannot pass it.
      if pg_sequence_last_value('mbus.{head}') <= v_generation then
{bulk_deliveries}        exit;
      end if;
