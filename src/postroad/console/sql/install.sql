-- The order of the files.  tables/ run once; the rest is replaced whenever a file has changed.
tables/account.sql
tables/session.sql
tables/login_attempt.sql
tables/audit.sql
tables/service.sql
internal/keep_an_admin.sql
functions/accounts.sql
functions/sessions.sql
functions/audit.sql
functions/services.sql
