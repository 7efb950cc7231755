-- After how many seconds a reported restore of a database counts; null: none was reported, 0: it counts, which it does after
-- 5 seconds.  A report from the future is old: the clock was set back.
create or replace function exchange.restored_in(p_database text) returns double precision
language sql stable set search_path from current as $$
  select case when d.restored_at > exchange.now() + interval '5 s' then 0
              else least(5, greatest(0, 5 - extract(epoch from exchange.now() - d.restored_at))) end
  from exchange.database d where d.id = p_database and d.restored_at is not null
$$;
