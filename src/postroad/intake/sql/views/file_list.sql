-- The files with the name of their server.  A file that waits in the queue of a worker has a lease and no worker.
create or replace view intake.file_list as
select f.id, f.server_id, s.name as server, f.filename, encode(f.path, 'hex') as path_hex, f.filesize, f.mtime, f.version,
       f.file_hash, f.status, f.error_message, f.attempts, f.next_try_at,
       case when f.lease_owner <> 'queued' then f.lease_owner end as worker, f.lease_until, f.bytes_done, f.store,
       f.object_key, f.cleanup, f.created_at, f.updated_at, f.completed_at, f.notice,
       substr(f.traceparent, 4, 32) as trace
from intake.imported_files f join intake.sftp_servers s on s.id = f.server_id;
