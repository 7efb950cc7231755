    v_parcel := row(null, mbus.now(), null, null, $3, null, null, {parameters})::mbus.parcel;
    return '{queue}.' || mbus._put_{queue}(v_parcel) || '@{node}';
