-- The status of each server, and its files by status.
create or replace view intake.server_status as
select s.id, s.name, s.host, s.port, s.username, s.directory, s.is_active, s.status, s.problem, s.failures,
       s.retry_at, s.last_scan_at, s.last_scan, s.next_scan_at,
       coalesce(f.waiting, 0) as waiting, coalesce(f.moving, 0) as moving, coalesce(f.completed, 0) as completed,
       coalesce(f.failed, 0) as failed
from intake.sftp_servers s
left join lateral (
  select count(*) filter (where i.status in ('discovered', 'downloaded', 'uploaded_to_minio')) as waiting,
         count(*) filter (where i.status in ('downloading', 'uploading_to_minio', 'notifying')) as moving,
         count(*) filter (where i.status = 'completed') as completed,
         count(*) filter (where i.status = 'failed') as failed
  from intake.imported_files i where i.server_id = s.id) f on true;
