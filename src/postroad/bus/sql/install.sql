-- Files that others of their folder need; the rest follows by folder and name.
tables/queue.sql
tables/consumer.sql
tables/temporary.sql
internal/ring.sql          -- used by SQL-standard bodies
views/measures.sql
