    when {cell} then
      with gone as (
        delete from mbus.{ready} s
        where (s.id = any (p_numbers) and s.origin is null or s.origin = any (p_numbers)) and s.leased_until > v_now
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest(p_numbers, p_tokens))
        returning s.token)
      select array_agg(g.token) into v_found from gone g;
