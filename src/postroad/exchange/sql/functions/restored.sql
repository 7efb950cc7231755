-- After how many seconds a reported restore of a database counts; null: none was reported, 0: it counts, which it does after
-- 5 seconds.  A report from the future is old: the clock was set back.
create or replace function exchange.restored_in(p_database text) returns double precision
language sql stable set search_path from current as $$
  select case when d.restored_at > exchange.now() + interval '5 s' then 0
              else least(5, greatest(0, 5 - extract(epoch from exchange.now() - d.restored_at))) end
  from exchange.database d where d.id = p_database and d.restored_at is not null
$$;

-- Raises alerts for the reports that count now.
create or replace function exchange._alert_restored() returns void
language sql volatile set search_path from current as $$
  with reported as (
    update exchange.database d set is_restore_told = true
    where d.restored_at is not null and not d.is_restore_told and exchange.restored_in(d.id) = 0
    returning d.id, d.restored_seq, d.committed_seq)
  select alerts.raise(
    'exchange/restored/' || t.id, 'exchange', 'critical', format('database %s was restored from a backup', t.id),
    format('Its last marker is %s, and %s was committed. What it lost is in Log: postroad exchange replay %s',
      t.restored_seq, t.committed_seq, t.id))
  from reported t
$$;
