-- Whether no notices about a key are sent at present.
create or replace function alerts._is_muted(p_key text) returns boolean
language sql volatile set search_path from current as $$
  select exists (select from alerts.handling h where h.key = p_key and h.muted_until > alerts.now())
$$;
