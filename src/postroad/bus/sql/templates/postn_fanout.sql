    when {cell} then
      with incoming as materialized (
        select m.* from unnest(v_ids, $1, v_headers, v_properties{hit_arrays}) m(id, data, headers, properties{hit_columns})
        where pg_sequence_last_value('mbus.{head}') <= v_generation)
      , stored as (
        insert into mbus.{log} (id, added, data, headers, properties, expires)
        select i.id, v_now, i.data, i.headers, i.properties, $5 from incoming i where {any_hit})
{bulk_deliveries}
      select i.id into v_generation from incoming i limit 1;
