  -- One transaction at a time moves the cursor; see internal/cursor.sql.
  if not pg_try_advisory_xact_lock({consumer_id}, 0) then
    return;
  end if;
  v_bound := mbus._settled({queue_id}, 'mbus.{position}', 'mbus.{settled}');
