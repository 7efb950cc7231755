-- The lists of operators (postroad.exchange.resources): filtered, sorted and paged by their readers.

create or replace view exchange.database_list as
select d.id, d.resolution, coalesce(d.policy, (select s.failed_policy from exchange.server s)) as policy,
       (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'queued') as queued,
       (select count(*) from exchange.process p join exchange.message m on m.process_id = p.id and m.state = 'leased'
        where p.database_id = d.id and p.state in ('STARTED', 'READY_TO_COMMIT')) as leased,
       (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'deferred') as deferred,
       (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'parked') as parked,
       (select count(*) from exchange.process p where p.database_id = d.id and p.state = 'UNKNOWN') as in_doubt,
       (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'waiting') as replies,
       (select min(m.created_at) from exchange.message m where m.database_id = d.id and m.state = 'queued') as oldest_at,
       a.id as process, a.state as process_state, d.committed_seq,
       case when d.is_restore_told then d.restored_at end as restored_at, d.created_at
from exchange.database d
left join exchange.process a on a.database_id = d.id and a.state in ('STARTED', 'READY_TO_COMMIT');

-- Clients without their secrets.
create or replace view exchange.client_list as
select c.id, c.is_admin, c.databases, c.recipients, c.created_at, c.may_send, c.may_take from exchange.client c;

-- The servers that run.
create or replace view exchange.server_list as
select m.epoch, m.holder, m.started_at, m.seen_at, m.epoch is not distinct from s.sweeper as is_sweeper
from exchange.member m cross join exchange.server s;

create or replace view exchange.process_list as
select p.number, p.id, p.database_id as database, p.recipient, p.client_id as owner, p.state, p.outcome, p.started_at, p.ready_at,
       p.ended_at, p.expires_at, p.error, p.tries,
       (select count(*) from exchange.process_file f where f.process_id = p.id and not f.is_refused) as files,
       (select count(*) from exchange.message m
        where m.process_id = p.id and m.kind = 'reply' and m.state <> 'discarded') as replies,
       substr(p.traceparent, 4, 32) as trace
from exchange.process p;

create or replace view exchange.message_list as
select m.number, m.database_id as database, m.kind, m.id, m.sender, nullif(m.recipient, '') as recipient, m.sequence, m.order_number,
       m.state, m.folder, m.file_name, m.size, m.failures, m.error, m.process_id as process, m.created_at, m.finished_at,
       m.object, substr(m.traceparent, 4, 32) as trace
from exchange.message m;
