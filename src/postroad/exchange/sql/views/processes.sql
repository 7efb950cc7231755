-- Processes that have not ended, for administrators with psql.
create or replace view exchange.open_processes as
select p.id, p.database_id as database, p.recipient, p.client_id as owner, p.state, p.started_at, p.ready_at, p.expires_at, p.error
from exchange.process p
where p.state in ('STARTED', 'READY_TO_COMMIT', 'UNKNOWN', 'CLEANUP', 'FAILED');
