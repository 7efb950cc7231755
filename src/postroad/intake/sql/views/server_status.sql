-- Each server with its status, its files by status and its settings; looks and way are deprecated names.
create or replace view intake.server_status as
select s.id, s.name, s.host, s.port, s.username, s.directory, s.is_active, s.status, s.problem, s.failures,
       s.retry_at, s.last_scan_at, s.last_scan, s.next_scan_at,
       coalesce(f.waiting, 0) as waiting, coalesce(f.moving, 0) as moving, coalesce(f.completed, 0) as completed,
       coalesce(f.failed, 0) as failed, s.host_key, s.seen_host_key, s.trusts_first_key, s.scan_interval, s.include, s.exclude,
       s.ignore, s.is_case_sensitive, s.max_depth, s.follows_links, s.looks, s.looks as stable_checks, s.minimum_age,
       s.done_suffix, s.after_import, s.move_to, s.way, s.way as transfer_mode, s.max_connections, s.created_at, s.updated_at
from intake.sftp_servers s
left join lateral (
  select count(*) filter (where i.status in ('discovered', 'downloaded', 'uploaded_to_minio')) as waiting,
         count(*) filter (where i.status in ('downloading', 'uploading_to_minio', 'notifying')) as moving,
         count(*) filter (where i.status = 'completed') as completed,
         count(*) filter (where i.status = 'failed') as failed
  from intake.imported_files i where i.server_id = s.id) f on true;
