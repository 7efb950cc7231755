  -- For a row, "is not null" would mean that every column has a value.
  if not v_accepted.parcel is null then    -- neither set aside nor a repetition
    v_accepted.number := mbus._put_{queue}(v_accepted.parcel);
  end if;
{follow}  return '{queue}.' || v_accepted.number || '@{node}';
