    -- The common case; see mbus._put_{queue} for why the insert checks the head.
    v_id := nextval('mbus.{position}');
    loop
      v_generation := pg_sequence_last_value('mbus.{tail}');
      case v_generation % {slots}
{branches}
      end case;
      exit when found;
    end loop;
    return '{queue}.' || v_id || '@{node}';
