  begin
    v_error := null;
    v_is_hit := ({selector}
    );
  exception when others or assert_failure then
    v_error := 'selector of the trigger from {queue}: ' || sqlerrm;
  end;
  if v_error is not null then
    perform mbus._bury_copy({destination_id}, p_parcel, v_headers, v_error);
  elsif v_is_hit then
    perform mbus.post_{destination}(p_parcel.{data}, v_headers, p_parcel.properties, p_delayed_until, p_parcel.expires);
  end if;
