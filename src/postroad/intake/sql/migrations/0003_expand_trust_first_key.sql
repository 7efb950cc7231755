-- breaks older: no
alter table intake.sftp_servers add column trusts_first_key boolean not null default false;
