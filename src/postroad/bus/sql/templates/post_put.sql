  if v_accepted.parcel is null then    -- delayed, or a message with this key is there already
    return '{queue}.' || v_accepted.number || '@{node}';
  end if;
  return '{queue}.' || mbus._put_{queue}(v_accepted.parcel) || '@{node}';
