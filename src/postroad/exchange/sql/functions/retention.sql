-- Marks up to p_limit finished messages older than p_kept: their files are to be removed.  Never touches what is unread,
-- parked or in doubt, nor a message whose process is still known to be under way.  Returns what is to be removed.
create or replace function exchange.mark_outdated(p_epoch bigint, p_kept interval, p_limit integer) returns setof jsonb
language plpgsql volatile set search_path from current as $$
begin
  perform exchange._enter(p_epoch);
  return query
    with marked as (
      update exchange.message m set folder = null
      where m.number in (
        select o.number from exchange.message o
        where o.state in ('done', 'discarded') and o.finished_at < exchange.now() - p_kept and o.folder is not null
        order by o.finished_at limit p_limit for update skip locked)
      returning m.*)
    select exchange._move(k::exchange.message, row(k.number, o.folder, null, null)::exchange.move)
    from marked k join exchange.message o on o.number = k.number;
end $$;

-- Forgets messages whose files are gone and processes that ended before; returns how many of both.
create or replace function exchange.forget_outdated(p_epoch bigint, p_kept interval, p_limit integer)
returns table (messages bigint, processes bigint)
language plpgsql volatile set search_path from current as $$
begin
  perform exchange._enter(p_epoch);
  delete from exchange.message m
  where m.number in (
    select o.number from exchange.message o
    where o.state in ('done', 'discarded') and o.finished_at < exchange.now() - p_kept and o.folder is null
      and not exists (select from exchange.move v where v.number = o.number)
    order by o.finished_at limit p_limit);
  get diagnostics messages = row_count;
  delete from exchange.process p
  where p.id in (
    select o.id from exchange.process o
    where o.ended_at < exchange.now() - p_kept
      and not exists (select from exchange.message m where m.process_id = o.id)
    order by o.ended_at limit p_limit);
  get diagnostics processes = row_count;
  return next;
end $$;
