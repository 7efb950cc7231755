      exit when v_missing <= 0;
      v_ids := '{}';
      case v_generation % {slots} + {slots} * v_lane
{branches}
      end case;
