        when {cell} then
          v_hint := pg_sequence_last_value('mbus.{hint}');
          continue when v_hint = 4611686018427387904;    -- drained, see mbus._drained
          -- One snapshot for the whole table, so that the first row of a group is its first message.  The row without an id is the last.
          for v_row in
            (select r.id, {message}.headers -> 'group' as name from mbus.{ready} r{lateral}
             where r.id >= v_hint and r.token is null and ({message}.expires is null or {message}.expires > v_now) order by r.id)
            union all select null, null
          loop
            if v_is_later and v_row.name is not null then
              v_seen := mbus._groups_before({queue_id}, {consumer_id}, v_generation, v_seen);
              v_is_later := false;
            end if;
            if v_row.name is null then
              v_ids := v_ids || v_row.id;
            elsif v_row.name <> all (v_seen) then
              v_seen := v_seen || v_row.name;
              if pg_try_advisory_xact_lock({consumer_id}, hashtext(v_row.name)) then
                v_ids := case when mbus._is_group_held({consumer_id}, v_row.name) then v_ids else v_ids || v_row.id end;
              end if;
            end if;
            continue when cardinality(v_ids) < v_missing and v_row.id is not null;
            exit when v_generation < pg_sequence_last_value('mbus.{head}');    -- the table is used for a newer generation
            return query
            with gone as (
              delete from mbus.{ready} s
              where s.ctid = any (array(
                select r.ctid from mbus.{ready} r where r.id = any (v_ids) and r.token is null order by r.id for update of r skip locked))
              returning {returned})
            select {output}
            from {taken} {note_taken}order by g.id;
            get diagnostics v_found = row_count;
            v_missing := v_missing - v_found;
            v_ids := '{}';
            exit when v_missing <= 0;
          end loop;
          v_is_later := true;
