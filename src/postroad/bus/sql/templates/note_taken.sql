where (
          select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), e'\n{consumer_id}:',
            array_agg(coalesce(n.origin, n.id)), jsonb_object_agg(n.origin, {trail}) filter (where n.origin is not null)), true)
          from gone n having count(*) > 0) is not null    -- see mbus._taken_here
        