      when {cell} then
        v_hint := pg_sequence_last_value('mbus.{hint}');
        return query
        with picked as materialized (
          select s.ctid as at from mbus.{ready} s join mbus.{log} l on l.id = s.id
          where s.id >= v_hint and (l.expires is null or l.expires > v_now)
          order by s.id limit v_missing for update of s skip locked)
        , gone as (
          delete from mbus.{ready} s using picked p where s.ctid = p.at returning s.id)
        select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[],
               {columns}
        from gone d join mbus.{log} g on g.id = d.id order by g.id;
