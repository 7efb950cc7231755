    when {cell} then
      insert into mbus.{log} (id, added, data, headers, properties, expires)
      select v_ids[m.place], v_now, $1[m.place], v_headers[m.place], v_properties[m.place], $5
      from generate_series(1, v_count) m(place)
      where (select pg_sequence_last_value('mbus.{head}')) <= v_generation and ({any_hit});
      -- The slot is locked now, whether or not anything was stored: the head cannot pass it.
      if pg_sequence_last_value('mbus.{head}') <= v_generation then
{bulk_deliveries}        exit;
      end if;
