  begin
    if ({selector}
    ) then
      v_recipients := v_recipients || {consumer_id};
    end if;
  exception when others or assert_failure then
    perform mbus._bury({consumer_id}, p_parcel, p_number, 'selector: ' || sqlerrm);
  end;
