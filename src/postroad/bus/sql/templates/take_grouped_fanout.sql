        when {cell} then
          v_from := greatest(v_from, pg_sequence_last_value('mbus.{hint}'));
          exit when v_from = 4611686018427387904;    -- drained, see mbus._drained
          for v_row in
            -- offset 0 keeps the planner from walking along the log, which holds what was consumed long ago.
            select s.id, l.headers -> 'group' as name from mbus.{ready} s
            cross join lateral (select e.headers, e.expires from mbus.{log} e where e.id = s.id offset 0) l
            where s.id >= v_from and (l.expires is null or l.expires > v_now) order by s.id
          loop
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock({consumer_id}, hashtext(v_row.name)) then
                v_ids := v_ids || v_row.id;
              end if;
            end if;
            exit when cardinality(v_ids) >= v_missing;
          end loop;
          v_from := v_ids[cardinality(v_ids)] + 1;
          return query
          with gone as (
            delete from mbus.{ready} s
            where s.ctid = any (array(
              select r.ctid from mbus.{ready} r
              cross join lateral (select e.headers from mbus.{log} e where e.id = r.id offset 0) l
              where r.id = any (v_ids)
                and (l.headers -> 'group' is null
                     or not mbus._is_group_held({consumer_id}, l.headers -> 'group'))
              order by r.id for update of r skip locked))
            returning s.id, s.origin)
          select {output}
          from gone d join mbus.{log} g on g.id = d.id {note_taken}order by g.id;
