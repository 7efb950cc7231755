
        -- After messages that were given back, those that the cursor has not passed.
        get diagnostics v_found = row_count;
        v_missing := v_missing - v_found;
        v_from := coalesce((select - s.id from mbus.{ready} s where s.id < 0 and s.origin is null order by s.id limit 1), 0);
        return query
        with gone as materialized (
          select l.* from mbus.{log} l
          where l.id > v_from and l.id <= v_bound and l.origin is null and (l.expires is null or l.expires > v_now)
            and l.id <> all (array(select - s.id from mbus.{ready} s where s.id < - v_from and s.origin = 0))
          order by l.id limit v_missing),
        moved as (
          insert into mbus.{ready} (id)
          select - case when count(*) < v_missing then v_bound else max(n.id) end from gone n
          having v_missing > 0 and (count(*) > 0 or exists (select from mbus.{log} l where l.id > v_from and l.id <= v_bound)))
        select {output}
        from gone g {note_taken}order by g.id;