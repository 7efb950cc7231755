  -- Of a row, "is not null" would ask whether every column has a value.
  if not v_accepted.parcel is null then
    v_accepted.number := mbus._put_{queue}(v_accepted.parcel);
    if not v_accepted.is_known then
      perform mbus._follow_{queue}(v_parcel, v_accepted.number, $4);
    end if;
  elsif not v_accepted.is_known then    -- set aside until it is due
    perform mbus._follow_{queue}(v_parcel, v_accepted.number, $4);
  end if;
  return '{queue}.' || v_accepted.number || '@{node}';
