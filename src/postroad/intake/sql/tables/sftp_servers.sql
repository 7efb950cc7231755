-- The sources: one row per watched folder of an SFTP server.  Two folders of one host are two rows.
create table intake.sftp_servers (
  id          integer generated always as identity primary key,
  name        text not null constraint server_name_is_taken unique
              constraint server_name_fits check (name ~ '^[^/[:cntrl:]]{1,100}$' and name not in ('.', '..')),
  host        text not null constraint host_is_given check (host <> ''),
  port        integer not null default 22 constraint port_is_a_port check (port between 1 and 65535),
  username    text not null constraint username_is_given check (username <> ''),
  -- Sealed by the vault: password, private key with passphrase, certificate.
  credentials text not null constraint credentials_are_sealed check (credentials like 'sealed:%'),
  directory   text not null default '.' constraint directory_is_given check (directory <> ''),
  is_active   boolean not null default true,
  -- Public keys of the host, one per line.  Null: pinned on first use.
  host_key    text,
  -- Whether a password is sent to a host whose key is not pinned yet.
  trusts_first_key boolean not null default false,
  -- The files to import.
  scan_interval interval constraint scan_interval_is_positive check (scan_interval > '0'),
  include     text[] not null default '{*}',
  exclude     text[] not null default '{}',
  ignore      text[] not null default '{*.tmp,*.part,*.partial,*.filepart,*.crdownload,.*}',
  is_case_sensitive boolean not null default true,
  max_depth   integer not null default 0 constraint depth_is_between_0_and_100 check (max_depth between 0 and 100),
  follows_links boolean not null default false,
  -- When a file is complete: `looks` scans with equal size and mtime (`stable_checks` in the API), time unchanged, a done-file.
  looks       integer not null default 2 constraint looks_are_between_1_and_10 check (looks between 1 and 10),
  minimum_age interval not null default '0' constraint minimum_age_is_not_negative check (minimum_age >= '0'),
  done_suffix text constraint done_suffix_is_given check (done_suffix <> '' and done_suffix not like '%/%'),
  -- The action on the file at the source after the import.
  after_import text not null default 'leave'
              constraint after_import_is_known check (after_import in ('leave', 'delete', 'move')),
  move_to     text constraint move_needs_a_folder check (after_import <> 'move' or move_to <> ''),
  -- How files are transferred (`transfer_mode` in the API).
  way         text not null default 'stream' constraint way_is_known check (way in ('stream', 'temporary_file')),
  max_connections integer not null default 4
              constraint connections_are_between_1_and_64 check (max_connections between 1 and 64),
  -- The status; host_key_changed waits for an operator.
  status      text not null default 'new' constraint server_status_is_known check (status in
              ('new', 'ok', 'unreachable', 'login_refused', 'forbidden', 'error', 'host_key_changed')),
  problem     text,
  failures    integer not null default 0,
  retry_at    timestamptz,
  seen_host_key text,
  next_scan_at timestamptz not null default clock_timestamp(),
  scan_token  bigint,
  scan_until  timestamptz,
  last_scan_at timestamptz,
  last_scan   jsonb,
  created_at  timestamptz not null default clock_timestamp(),
  updated_at  timestamptz not null default clock_timestamp(),
  constraint folder_is_watched_already unique (host, port, username, directory)
);
