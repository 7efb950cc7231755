-- Records one page of a listing: known versions are ignored, the others become sightings, and those that are complete become
-- files.  A version that was superseded or had vanished and has reappeared is imported.  Returns how many files were discovered,
-- and how many of the page wait for a later scan.
-- p_done_for: for a done-file the path of the file that it declares complete, otherwise null.
-- Locks: the server's row, then sightings.
create or replace function intake.see(
  p_server_id integer, p_scan bigint, p_paths bytea[], p_filenames text[], p_sizes bigint[], p_mtimes bigint[],
  p_done_for bytea[]) returns integer[]
language plpgsql set search_path from current as $$
declare
  v_count integer;
  v_again bigint[];
begin
  perform intake._server(p_server_id);
  -- Subqueries per row here and in promote: a join reads all rows of the server while the statistics are of a small table.
  with page as (
    select distinct on (p.digest) p.*, f.id, f.status in ('vanished', 'superseded') and f.upload_id is null as is_gone
    from (select u.*, sha256(u.path) as digest, sha256(u.declares) as done_for
          from unnest(p_paths, p_filenames, p_sizes, p_mtimes, p_done_for) u(path, filename, filesize, mtime, declares)) p
    left join lateral (
      select i.id, i.status, i.upload_id from intake.imported_files i
      where i.server_id = p_server_id and i.path_digest = p.digest and i.filesize = p.filesize and i.mtime = p.mtime limit 1) f on true)
  , again as (
    update intake.imported_files f
    set status = 'discovered', error_message = null, attempts = 0, lost_workers = 0, bytes_done = 0, upload_id = null,
        next_try_at = intake.now(), updated_at = intake.now(),
        traceparent = coalesce(nullif(current_setting('postroad.traceparent', true), ''), f.traceparent)
    where f.id = any (array(select p.id from page p where p.is_gone and p.done_for is null))
    returning f.id)
  , sighted as (
    insert into intake.sightings as g
      (server_id, path_digest, path, filename, filesize, mtime, looks, done_for, unchanged_since, scan)
    select p_server_id, p.digest, p.path, p.filename, p.filesize, p.mtime, 1, p.done_for, intake.now(), p_scan
    from page p
    where p.id is null
    -- Always in the same order, so that two discoverers cannot deadlock.
    order by p.digest
    on conflict (server_id, path_digest) do update
    set looks = case when g.filesize = excluded.filesize and g.mtime = excluded.mtime
                     then g.looks + (g.scan <> excluded.scan)::integer else 1 end,
        unchanged_since = case when g.filesize = excluded.filesize and g.mtime = excluded.mtime
                               then g.unchanged_since else excluded.unchanged_since end,
        filesize = excluded.filesize, mtime = excluded.mtime, scan = excluded.scan, done_for = excluded.done_for
    returning 1)
  select count(*), (select array_agg(a.id) from again a) into v_count, v_again from sighted;
  if v_again is not null then
    perform intake._record(v_again, 'discovered', 'reappeared at the source');
    delete from intake.file_parts p where p.file_id = any (v_again);
  end if;
  -- A done-file may be on another page than its file.
  v_count := case when v_count = 0 then 0 else intake.promote(p_server_id, array(
    select coalesce(u.done_for, u.path) from unnest(p_paths, p_done_for) u(path, done_for))) end;
  return array[v_count, (select count(*) from unnest(p_paths) p where (
    select true from intake.sightings g where g.server_id = p_server_id and g.path_digest = sha256(p)))];
end $$;

-- Inserts the sightings of these paths that are complete by the server's rules into imported_files and returns their number.
-- Locks: the server's row, so that two discoverers number the versions of a file one after the other.
create or replace function intake.promote(p_server_id integer, p_paths bytea[] default '{}') returns integer
language plpgsql set search_path from current as $$
declare
  v_server intake.sftp_servers := intake._server(p_server_id);
  v_ids    bigint[];
begin
  with whole as (
    delete from intake.sightings g
    where g.ctid = any (array(
        select (select s.ctid from intake.sightings s where s.server_id = p_server_id and s.path_digest = sha256(p))
        from unnest(p_paths) p))
      and g.done_for is null and g.looks >= v_server.looks
      and g.unchanged_since + v_server.minimum_age <= intake.now()
      and (v_server.done_suffix is null or (
        select true from intake.sightings d where d.server_id = p_server_id and d.done_for = g.path_digest limit 1))
    returning g.*)
  , made as (
    insert into intake.imported_files (server_id, filename, path, filesize, mtime, version, created_at, next_try_at)
    select w.server_id, w.filename, w.path, w.filesize, w.mtime,
           1 + coalesce((select max(f.version) from intake.imported_files f
                         where f.server_id = w.server_id and f.path_digest = w.path_digest), 0),
           intake.now(), intake.now()
    from whole w
    on conflict on constraint version_is_imported_once do nothing
    returning id)
  select array_agg(m.id) into v_ids from made m;
  if v_ids is null then return 0; end if;
  -- Only the last superseded version of a path is kept: a file that changes at each scan must not add a row per scan.
  delete from intake.imported_files f where f.id = any (array(
    select o.id from intake.imported_files n
    cross join lateral (
      select p.id from intake.imported_files p where p.server_id = n.server_id and p.path_digest = n.path_digest
        and p.status = 'superseded' and p.upload_id is null and p.version < n.version - 1 offset 0) o
    where n.id = any (v_ids)));
  perform intake._record(v_ids, 'discovered');
  return cardinality(v_ids);
end $$;
