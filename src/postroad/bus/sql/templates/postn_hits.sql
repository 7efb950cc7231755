    begin
      v_hits_{consumer_id} := array(
        select coalesce(({selector}
        ), false)
        from (
          select m.id, v_now as added, '{queue}.' || m.id || '@{node}' as iid,
                 null::timestamptz as delayed_until, $5 as expires, null::integer[] as received,
                 {headers} as headers, m.properties, m.data
          from (select unnest(v_ids) as id, unnest($1) as data, unnest(v_headers) as headers, unnest(v_properties) as properties) m) t);
    exception when others or assert_failure then
      v_one_by_one := true;    -- one of them raises: find out which
    end;
