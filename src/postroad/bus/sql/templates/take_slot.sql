      exit when v_missing <= 0;
      case v_generation % {slots} + {slots} * v_lane
{branches}
      end case;
      get diagnostics v_found = row_count;
      v_missing := v_missing - v_found;
