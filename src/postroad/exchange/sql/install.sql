-- Files that others of their folder need; the rest follows by folder and name.
tables/database.sql
tables/process.sql
