  v_recipients := coalesce(p_parcel.recipients, {chosen});
  if v_recipients = '{}' then
    return v_number;
  end if;
