  v_hint       bigint;
  v_row        record;
  v_ids        bigint[];
  v_seen       text[];
  v_retries    mbus.parcel[];
  v_is_later   boolean := false;
