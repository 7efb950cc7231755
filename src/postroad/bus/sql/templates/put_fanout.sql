    when {cell} then
      with stored as (
        insert into mbus.{log} (id, added, data, headers, properties, expires, origin, trail)
        select v_id, p_parcel.added, p_parcel.{data}, p_parcel.headers, p_parcel.properties,
               p_parcel.expires, v_origin, p_parcel.trail
        where pg_sequence_last_value('mbus.{head}') <= v_generation
        returning id, v_origin as origin, v_recipients as recipients)
{deliveries}
      select s.id into v_generation from stored s;
