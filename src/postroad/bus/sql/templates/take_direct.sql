      when {cell} then
        v_hint := pg_sequence_last_value('mbus.{hint}');
        continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
        return query
        with gone as (
          delete from mbus.{ready} s
          where s.ctid = any (array(
            select r.ctid from mbus.{ready} r
            where r.id >= v_hint and (r.expires is null or r.expires > v_now)
              and r.headers -> 'group' is null    -- see mbus._add_groups
            order by r.id limit v_missing for update skip locked))
          returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
        select {output}
        from gone g {note_taken}order by g.id;
