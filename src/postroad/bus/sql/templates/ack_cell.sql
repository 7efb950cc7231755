    when {cell} then
      with gone as (
        delete from mbus.{ready} s
        where (s.id = any (v_numbers) and s.origin is null or s.origin = any (v_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(v_numbers, tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;
