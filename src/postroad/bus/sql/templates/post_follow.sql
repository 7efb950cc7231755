  if not v_accepted.is_known then
    perform mbus._follow_{queue}(v_parcel, v_accepted.number, $4);
  end if;
