-- Seconds until a reported restore of a database takes effect, 5 after the report; null: none was reported, 0: it has taken effect.  A
-- report from the future counts as old, because the clock was set back.
create or replace function exchange.restored_in(p_database text) returns double precision
language sql stable set search_path from current as $$
  select case when d.restored_at > exchange.now() + interval '5 s' then 0
              else least(5, greatest(0, 5 - extract(epoch from exchange.now() - d.restored_at))) end
  from exchange.database d where d.id = p_database and d.restored_at is not null
$$;
