-- The journal: one row per version of a remote file, where a version is (path, size, mtime).
create sequence intake.lease_token;
create table intake.imported_files (
  id          bigint generated always as identity primary key,
  server_id   integer not null references intake.sftp_servers (id) on delete cascade,
  -- The path below the server's directory for display; path is the bytes that the server reports.
  filename    text not null,
  path        bytea not null,
  path_digest bytea not null generated always as (sha256(path)) stored,
  filesize    bigint not null constraint filesize_is_not_negative check (filesize >= 0),
  -- Seconds since 1970 as the server reports them.
  mtime       bigint not null,
  version     integer not null,
  file_hash   text constraint file_hash_is_sha256 check (file_hash ~ '^[0-9a-f]{64}$'),
  status      text not null default 'discovered' constraint file_status_is_known check (status in
              ('discovered', 'downloading', 'downloaded', 'uploading_to_minio', 'uploaded_to_minio', 'notifying',
               'completed', 'failed', 'vanished', 'superseded', 'skipped')),
  error_message text,
  attempts    integer not null default 0,
  next_try_at timestamptz not null default clock_timestamp(),
  lease_token bigint,
  lease_owner text,
  lease_until timestamptz,
  bytes_done  bigint not null default 0,
  bytes_at_claim bigint not null default 0,
  store       text,
  object_key  text,
  upload_id   text,
  part_size   bigint,
  -- The state of the clean-up at the source: pending, done, given_up.
  cleanup     text constraint cleanup_is_known check (cleanup in ('pending', 'done', 'given_up')),
  created_at  timestamptz not null default clock_timestamp(),
  updated_at  timestamptz not null default clock_timestamp(),
  completed_at timestamptz,
  -- The trace of the scan that found it, or of the request that retried it.
  traceparent text default nullif(current_setting('postroad.traceparent', true), ''),
  -- Workers that died in a row while they held it, without a byte of progress.
  lost_workers integer not null default 0,
  -- The version with the same content, if only the mtime has changed; then this row has no notice and no separate object.
  same_as     bigint references intake.imported_files (id) on delete cascade,
  -- The iid of its notice in the queue file_events.
  notice      text,
  constraint version_is_imported_once unique (server_id, path_digest, filesize, mtime),
  constraint lease_needs_owner check ((lease_token is null) = (lease_until is null)
                                      and (lease_token is null) = (lease_owner is null))
);
create index imported_files_ready_idx on intake.imported_files (server_id, next_try_at, id)
  where status in ('discovered', 'downloaded', 'uploaded_to_minio');
create index imported_files_leased_idx on intake.imported_files (server_id, lease_until) where lease_token is not null;
create index imported_files_cleanup_idx on intake.imported_files (next_try_at) where cleanup = 'pending';
create index imported_files_uploads_idx on intake.imported_files (id)
  where upload_id is not null and status in ('failed', 'vanished', 'superseded', 'skipped', 'completed');
create index imported_files_same_as_idx on intake.imported_files (same_as) where same_as is not null;
create index imported_files_by_status_idx on intake.imported_files (status, id);
-- For the search over all components.
create index imported_files_by_name_idx on intake.imported_files (filename);
create index imported_files_by_trace_idx on intake.imported_files (substr(traceparent, 4, 32)) where traceparent is not null;
