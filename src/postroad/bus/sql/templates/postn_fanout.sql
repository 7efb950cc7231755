    when {cell} then
      insert into mbus.{log} (id, added, data, headers, properties, expires)
      select i.id, v_now, i.data, i.headers, i.properties, $5
      from unnest(v_ids, $1, v_headers, v_properties{hit_arrays}) i(id, data, headers, properties{hit_columns})
      where pg_sequence_last_value('mbus.{head}') <= v_generation and ({any_hit});
      -- The slot is locked now, whether or not anything was stored: the head cannot pass it.
      if pg_sequence_last_value('mbus.{head}') <= v_generation then
{bulk_deliveries}        exit;
      end if;
