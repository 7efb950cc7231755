-- Files that other files of the same folder need; the others follow by folder and name.
tables/queue.sql
