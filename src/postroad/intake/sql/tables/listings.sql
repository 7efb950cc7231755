-- What the last scan of a server has listed: an unchanged page whose files are all imported needs no statement.
create table intake.listings (
  server_id integer primary key references intake.sftp_servers (id) on delete cascade,
  -- The scan that may replace the pages; null when a file has vanished or was superseded since it began.
  scan      bigint,
  -- Digests of the pages without sightings.
  pages     bytea[] not null default '{}'
);
