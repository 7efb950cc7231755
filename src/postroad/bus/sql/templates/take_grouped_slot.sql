      v_from := 0;
      while v_from is not null and v_missing > 0 loop
        v_ids := '{}';
        case v_generation % {slots} + {slots} * v_lane
{branches}
        end case;
        get diagnostics v_found = row_count;
        v_missing := v_missing - v_found;
      end loop;
