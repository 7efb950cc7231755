-- Files that other files of the same folder need; the others follow by folder and name.
tables/queue.sql
tables/consumer.sql
tables/temporary.sql
internal/ring.sql          -- used by SQL-standard bodies
views/measures.sql
