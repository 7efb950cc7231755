-- The running transfers with their progress.
create or replace view intake.transfers as
select f.id, s.name as server, f.filename, f.status, f.bytes_done, f.filesize, f.lease_owner as worker,
       f.updated_at, f.attempts
from intake.imported_files f join intake.sftp_servers s on s.id = f.server_id
where f.lease_token is not null and f.lease_owner <> 'queued' and f.lease_until > intake.now();
