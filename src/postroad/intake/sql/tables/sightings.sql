-- Files that discovery has found and that are not complete yet.  A row is deleted when its file is imported or missing.
create sequence intake.scan_number;
create table intake.sightings (
  server_id   integer not null references intake.sftp_servers (id) on delete cascade,
  path_digest bytea not null,
  path        bytea not null,
  filename    text not null,
  filesize    bigint not null,
  mtime       bigint not null,
  -- Scans with equal size and mtime.
  looks       integer not null,
  -- Digest of the path of the file that this one declares done; null for an ordinary file.
  done_for    bytea,
  unchanged_since timestamptz not null,
  scan        bigint not null,
  primary key (server_id, path_digest)
);
create index sightings_done_idx on intake.sightings (server_id, done_for) where done_for is not null;
