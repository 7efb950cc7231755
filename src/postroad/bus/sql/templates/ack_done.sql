  perform mbus._done({queue_id}, {consumer_id}, array(
    select u.number from unnest(v_numbers, tokens) u(number, token) where u.token = any (v_acked)));
