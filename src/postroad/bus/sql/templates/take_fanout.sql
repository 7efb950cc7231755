      when {cell} then
        v_hint := pg_sequence_last_value('mbus.{hint}');
        continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
        return query
        with gone as (
          delete from mbus.{ready} s
          where s.ctid = any (array(
            -- offset 0 keeps the planner from walking along the log, which holds what was consumed long ago.
            select r.ctid from mbus.{ready} r
            cross join lateral (select e.expires, e.headers from mbus.{log} e where e.id = r.id offset 0) l
            where r.id >= v_hint and (l.expires is null or l.expires > v_now)
              and l.headers -> 'group' is null    -- see mbus._add_groups
            order by r.id limit v_missing for update of r skip locked))
          returning s.id, s.origin)
        select {output}
        from gone d join mbus.{log} g on g.id = d.id {note_taken}order by g.id;
