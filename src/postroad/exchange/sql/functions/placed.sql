-- Records that files were moved, by these versions of their plans.  A file with a newer plan stays pending.
-- Processes in CLEANUP or FAILED all of whose files are in place are DONE.
--   p_folders  where the caller has put the files: another server may have followed and recorded a newer plan before
create or replace function exchange.placed(
  p_epoch bigint, p_numbers bigint[], p_versions bigint[], p_processes text[], p_folders text[] default null)
returns void
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_done exchange.process[];
begin
  perform exchange._enter(p_epoch);
  delete from exchange.move v
  using unnest(p_numbers, p_versions) u (number, version)
  where v.number = u.number and v.version = u.version;
  insert into exchange.move (number, source)
  select m.number, u.folder
  from unnest(p_numbers, p_folders) u (number, folder) join exchange.message m on m.number = u.number
  where u.folder <> m.folder and m.object is null
  on conflict do nothing;
  -- Locked in a separate statement, so that the next one sees the moves that another server has recorded in the meantime.
  perform from exchange.process p where p.id = any (p_processes) and p.state in ('CLEANUP', 'FAILED') order by p.id for update;
  with done as (
    update exchange.process p set state = 'DONE', ended_at = exchange.now(), error = null
    where p.id = any (p_processes) and p.state in ('CLEANUP', 'FAILED') and not exists (
      select from exchange.message m join exchange.move v on v.number = m.number where m.process_id = p.id)
    returning p)
  select array_agg(d.p) into v_done from done d;
  perform alerts.clear('exchange/failed/' || p.id) from unnest(v_done) p where p.tries > 0;
  perform exchange._note(p, null, null) from unnest(v_done) p;
end $$;

-- The files of a decided process could not be moved: FAILED, retried, an alert.
create or replace function exchange.not_placed(p_epoch bigint, p_process text, p_reason text) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_process exchange.process;
begin
  perform exchange._enter(p_epoch);
  update exchange.process p set state = 'FAILED', tries = p.tries + 1, error = p_reason
  where p.id = p_process and p.state in ('CLEANUP', 'FAILED') returning p.* into v_process;
  if v_process.tries = 1 then
    perform exchange._note(v_process, null, p_reason);
    perform alerts.raise(
      'exchange/failed/' || p_process, 'exchange', 'error', format('the files of process %s cannot be moved', p_process),
      format('%s. The outcome is known and safe; moving is retried automatically.', p_reason));
  end if;
end $$;

-- The pending moves of the recorded plan, oldest first.  p_processes and p_numbers null: all of them.
create or replace function exchange.pending(p_processes text[], p_numbers bigint[], p_after bigint, p_limit integer) returns setof jsonb
language sql stable set search_path from current as $$
  select exchange._move(m, v)
  from exchange.move v join exchange.message m on m.number = v.number
  where v.number > p_after and (p_processes is null or m.process_id = any (p_processes))
    and (p_numbers is null or v.number = any (p_numbers))
  order by v.number limit p_limit
$$;

-- The file of a message is not in its folder: plans a search for it, unless one is already planned.
create or replace function exchange.plan_again(p_epoch bigint, p_number bigint, p_folder text) returns void
language sql volatile set search_path from current as $$
  select exchange._enter(p_epoch);
  insert into exchange.move (number, source)
  select m.number, m.folder from exchange.message m where m.number = p_number and m.folder = p_folder
  on conflict do nothing
$$;

-- Contents were copied to the other store under new names: from now on their messages refer to them.  The plans, which are returned, remove
-- the files that were copied, or give the copies the names of files.  A message whose row has changed since the caller read it is left out.
--   p_objects, p_folders  what the caller has copied; an object null: a file in that folder.  Errors: MX001.
create or replace function exchange.record_copies(
  p_epoch bigint, p_numbers bigint[], p_objects text[], p_folders text[], p_temporaries text[]) returns setof jsonb
language plpgsql volatile set search_path from current as $$
begin
  perform exchange._enter(p_epoch);
  return query with unlocked as (
    -- Not those that a call has locked: two that lock several could wait for each other.
    select m.number from exchange.message m where m.number = any (p_numbers) order by m.number for update skip locked
  ), copied as (
    update exchange.message m set object = exchange._object(g.temporary)
    from unnest(p_numbers, p_objects, p_folders, p_temporaries) g (number, object, folder, temporary)
    where m.number = g.number and m.number in (select l.number from unlocked l) and m.object is not distinct from g.object
      and m.folder = g.folder and not exists (select from exchange.move v where v.number = m.number)
    returning m.number, m, case when m.object is null then g.temporary end as temporary
  ), planned as (
    insert into exchange.move as v (number, source, temporary)
    select c.number, case when c.temporary is null then (c.m).folder end, c.temporary from copied c
    on conflict on constraint move_pkey do update  -- planned again by a reader in this moment
    set source = excluded.source, temporary = excluded.temporary, version = excluded.version, planned_at = excluded.planned_at
    returning v.number, v
  )
  select exchange._move(c.m, p.v) from copied c join planned p on p.number = c.number;
end $$;
