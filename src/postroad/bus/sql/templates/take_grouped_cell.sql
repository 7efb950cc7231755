        when {cell} then
          v_from := greatest(v_from, pg_sequence_last_value('mbus.{hint}'));
          exit when v_from = 4611686018427387904;    -- drained, see mbus._drained
          for v_row in
            select r.id, {message}.headers -> 'group' as name from mbus.{ready} r{lateral}
            where r.id >= v_from and r.token is null and ({message}.expires is null or {message}.expires > v_now) order by r.id
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
              select r.ctid from mbus.{ready} r{lateral}
              where r.id = any (v_ids) and r.token is null
                and ({message}.headers -> 'group' is null
                     or not mbus._is_group_held({consumer_id}, {message}.headers -> 'group'))
              order by r.id for update of r skip locked))
            returning {returned})
          select {output}
          from {taken} {note_taken}order by g.id;
