-- Assigns work of one server: returns batches of file ids, each for one connection and one task.  A large file is a batch of
-- its own, small ones share one.  The files are held for p_hold; when the task is lost the lease expires.
-- There are never more batches than free connections to the server; a failing server or store gets one batch at a time.
-- Locks: the server's row, then the files.
create or replace function intake.pick(
  p_server_id integer, p_store text, p_small_bytes bigint, p_batch_files integer, p_batch_bytes bigint,
  p_hold interval default '60 seconds') returns table (ids bigint[])
language plpgsql set search_path from current as $$
declare
  v_server intake.sftp_servers := intake._server(p_server_id);
  v_store  intake.store_state;
  v_free   integer;
  v_queued integer;
  v_share  integer;
  v_batch  bigint[];
begin
  perform intake._release_expired(p_server_id);
  select * into v_store from intake.store_state t where t.store = p_store;
  if not v_server.is_active or v_server.status = 'host_key_changed'
     or v_server.retry_at > intake.now() or v_store.retry_at > intake.now() then
    return;
  end if;
  select case when v_server.failures > 0 or v_store.failures > 0 then 1 else v_server.max_connections end
         - count(distinct f.lease_token), count(distinct f.lease_token) filter (where f.lease_owner = 'queued')
    into v_free, v_queued
  from intake.imported_files f
  where f.server_id = p_server_id and f.lease_until > intake.now() and f.status in ('discovered', 'downloading');
  -- All servers share one queue of tasks: more queued batches than there are busy workers would only delay other servers.
  if v_server.max_connections > 4 then
    v_free := least(v_free, greatest(4, (
      select count(distinct f.lease_token) from intake.imported_files f
      where f.lease_token is not null and f.lease_until > intake.now() and f.status = 'downloading')) - v_queued);
  end if;
  if v_free <= 0 then return; end if;
  -- Small files are distributed over the free connections.
  select greatest(1, ceil(count(*)::numeric / v_free)) into v_share
  from (select from intake.imported_files f
        where f.server_id = p_server_id and f.status = 'discovered' and f.lease_token is null
          and f.next_try_at <= intake.now() and f.filesize <= p_small_bytes
        limit v_free * p_batch_files) small;
  v_share := least(v_share, p_batch_files);
  for v_batch in
    with ready as (
      select f.id, f.filesize, f.filesize <= p_small_bytes as is_small
      from intake.imported_files f
      where f.server_id = p_server_id and f.status = 'discovered' and f.lease_token is null
        and f.next_try_at <= intake.now()
      order by f.next_try_at, f.id
      limit v_free * p_batch_files
      for update skip locked)
    , placed as (
      select r.id, r.is_small,
             row_number() over (partition by r.is_small order by r.id) as place,
             sum(r.filesize) over (partition by r.is_small order by r.id) as bytes
      from ready r)
    select array_agg(p.id order by p.id)
    from placed p
    group by p.is_small, case when p.is_small
      then greatest((p.place - 1) / v_share, div(p.bytes, greatest(p_batch_bytes, 1))::bigint) else p.id end
    order by min(p.id)
    limit v_free
  loop
    update intake.imported_files f
    set lease_token = t.token, lease_owner = 'queued', lease_until = intake.now() + p_hold
    from (select nextval('intake.lease_token') as token) t
    where f.id = any (v_batch);
    ids := v_batch;
    return next;
  end loop;
end $$;
