-- Files that others of their folder need; the rest follows by folder and name.
tables/sftp_servers.sql
tables/imported_files.sql
