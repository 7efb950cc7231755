-- Plans the removal of up to p_limit finished messages older than p_kept: their files are to be removed.  Unread, parked and in-doubt
-- messages, and those of an open process, are never removed.  Returns the planned moves.
create or replace function exchange.mark_outdated(p_epoch bigint, p_kept interval, p_limit integer) returns setof jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_numbers bigint[];
begin
  perform exchange._enter(p_epoch);
  with marked as (
    update exchange.message m set folder = null
    where m.number in (
      select o.number from exchange.message o
      where o.state in ('done', 'discarded') and o.finished_at < exchange.now() - p_kept and o.folder is not null
      order by o.finished_at limit p_limit for update skip locked)
    returning m.number)
  select array_agg(k.number) into v_numbers from marked k;
  return query
    select exchange._move(m, v) from exchange.move v join exchange.message m on m.number = v.number
    where v.number = any (v_numbers);
end $$;

-- Deletes messages whose files are removed and processes that ended before; returns the total number.
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
