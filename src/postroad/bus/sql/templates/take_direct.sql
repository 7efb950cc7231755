      when {cell} then
        v_hint := pg_sequence_last_value('mbus.{hint}');
        return query
        with picked as materialized (
          select s.ctid as at from mbus.{ready} s
          where s.id >= v_hint and (s.expires is null or s.expires > v_now)
          order by s.id limit v_missing for update skip locked)
        , gone as (
          delete from mbus.{ready} s using picked p where s.ctid = p.at
          returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
        select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[],
               {columns}
        from gone g order by g.id;
