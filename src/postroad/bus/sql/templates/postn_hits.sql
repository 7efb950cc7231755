    begin
      v_hits_{consumer_id} := array(
        select coalesce(({selector}
        ), false)
        from (
          select v_ids[m.place] as id, v_now as added, '{queue}.' || v_ids[m.place] || '@{node}' as iid,
                 null::timestamptz as delayed_until, $5 as expires, null::integer[] as received,
                 {headers} as headers, v_properties[m.place] as properties, $1[m.place] as data
          from generate_series(1, v_count) m(place)) t);
    exception when others or assert_failure then
      v_one_by_one := true;    -- one of them raises: find out which
    end;
