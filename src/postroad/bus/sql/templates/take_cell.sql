      when {cell} then
        v_hint := pg_sequence_last_value('mbus.{hint}');
        continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
        return query
        with gone as (
          {removal}
          where s.ctid = any (array(
            select r.ctid from mbus.{ready} r
            where r.id >= v_hint and r.token is null and {allowed}{chosen}
            order by r.id limit v_missing for update of r skip locked))
          returning {returned})
        select {output}{leased}
        from {taken} {note_taken}order by g.id;{ahead}
