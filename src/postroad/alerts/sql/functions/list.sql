-- The episodes, the open ones first, then the latest.  p_is_open: only those that are not cleared.
-- Folds pending reports first, so a report is visible as soon as its transaction has committed.
create or replace function alerts.list(p_is_open boolean default true, p_limit integer default 100)
returns table (id bigint, key text, room text, severity text, title text, body text, count bigint,
               raised_at timestamptz, last_at timestamptz, cleared_at timestamptz, acked_at timestamptz, acked_by text,
               told text[])
language plpgsql security definer set search_path from current as $$
begin
  perform alerts.fold();
  return query
    select a.* from alerts.alert_list a where a.cleared_at is null or not p_is_open
    order by a.cleared_at is not null, coalesce(a.cleared_at, a.last_at) desc, a.id desc limit p_limit;
end $$;
