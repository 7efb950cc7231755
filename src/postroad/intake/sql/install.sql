-- Files that other files of the same folder need; the others follow by folder and name.
tables/sftp_servers.sql
tables/imported_files.sql
