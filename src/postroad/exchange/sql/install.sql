-- Files that other files of the same folder need; the others follow by folder and name.
tables/database.sql
tables/process.sql
