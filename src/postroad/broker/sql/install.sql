-- The order of the files.  tables/ run once; the rest is replaced whenever a file has changed.
tables/queue.sql
tables/exchange.sql
tables/result.sql
tables/maintained.sql
internal/queues.sql
internal/wake.sql
functions/queues.sql
functions/exchanges.sql
functions/wake.sql
functions/publish.sql
functions/results.sql
functions/chords.sql
functions/maintain.sql
grants.sql
after.sql
