    begin
      v_hits_{consumer_id} := array(
        select coalesce(({selector}
        ), false)
        from (
          select m.id, v_now as added, '{queue}.' || m.id || '@{node}' as iid, null::timestamptz as delayed_until,
                 $5 as expires, null::integer[] as received, m.headers, m.properties, m.data
          from unnest(v_ids, $1, v_headers, v_properties) with ordinality m(id, data, headers, properties, place)
          order by m.place) t);
    exception when others then
      v_one_by_one := true;    -- one of them raises: find out which
    end;
