        when {cell} then
          v_from := greatest(v_from, pg_sequence_last_value('mbus.{hint}'));
          for v_row in
            select s.id, s.headers -> 'group' as name from mbus.{ready} s
            where s.id >= v_from and (s.expires is null or s.expires > v_now) order by s.id
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
          with picked as materialized (
            select s.ctid as at from mbus.{ready} s
            where s.id = any (v_ids)
              and (not coalesce(s.headers ? 'group', false)
                   or not mbus._is_group_held({consumer_id}, s.headers -> 'group'))
            order by s.id for update skip locked)
          , gone as (
            delete from mbus.{ready} s using picked p where s.ctid = p.at
            returning s.id, s.origin, s.added, s.expires, s.headers, s.properties, s.trail, s.data)
          select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[],
                 {columns}
          from gone g order by g.id;
