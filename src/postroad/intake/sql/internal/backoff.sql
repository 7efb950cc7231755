-- Returns the backoff after failures in a row: doubles from 2 s to 5 min, with jitter down to a half.
create or replace function intake._backoff(p_failures integer) returns interval
language sql volatile set search_path from current as $$
  select least(300, 2 * 2 ^ least(greatest(p_failures, 1) - 1, 20)) * (0.5 + random() / 2) * interval '1 second';
$$;
