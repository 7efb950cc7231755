  -- See mbus._tally.
  v_setting := current_setting('mbus.consumed_{consumer_id}', true);
  v_tally := case when v_setting ~ '^[0-9]{1,18}$' then v_setting::bigint else 0 end + {count};
  if v_tally % 16777216 > 0 then
    if extract(epoch from v_now)::bigint - v_tally / 16777216 between 0 and 2 then
      v_setting := set_config('mbus.consumed_{consumer_id}', v_tally::text, false);
    else
      perform mbus._tally({consumer_id}, 'consumed', {count});
    end if;
  end if;
