  v_recipients := coalesce(p_parcel.recipients, mbus._match_{queue}(p_parcel, v_number));
  if v_recipients = '{}' then
    return v_number;
  end if;
