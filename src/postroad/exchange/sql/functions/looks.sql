-- What administrators look at.  All read-only.

-- One process with its history; null if there is none.
create or replace function exchange.process_shown(p_process text) returns jsonb
language sql stable set search_path from current as $$
  select exchange._shown(p) || jsonb_build_object(
    'attempt', p.attempt, 'tries', p.tries,
    'replies', coalesce((
      select jsonb_agg(jsonb_build_object('name', m.file_name, 'recipient', m.recipient, 'state', m.state, 'folder', m.folder,
                                          'size', m.size, 'error', m.error) order by m.number)
      from exchange.message m where m.process_id = p.id and m.kind = 'reply'), '[]'),
    'history', coalesce((select jsonb_agg(jsonb_build_object('state', h.state, 'at', h.at, 'actor', h.actor, 'note', h.note) order by h.number)
                         from exchange.history h where h.process_id = p.id), '[]'))
  from exchange.process p where p.id = p_process
$$;

-- Databases with what lies in them.
create or replace function exchange.databases_shown(p_after text, p_limit integer)
returns table (id text, resolution text, policy text, queued bigint, leased bigint, deferred bigint, parked bigint, in_doubt bigint,
               replies bigint, oldest_at timestamptz, process text, process_state text, committed_seq bigint, restored_at timestamptz,
               created_at timestamptz)
language sql stable set search_path from current as $$
  select d.id, d.resolution, coalesce(d.policy, (select s.failed_policy from exchange.server s)),
         (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'queued'),
         (select count(*) from exchange.process p join exchange.message m on m.process_id = p.id and m.state = 'leased'
          where p.database_id = d.id and p.state in ('STARTED', 'READY_TO_COMMIT')),
         (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'deferred'),
         (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'parked'),
         (select count(*) from exchange.process p where p.database_id = d.id and p.state = 'UNKNOWN'),
         (select count(*) from exchange.message m where m.database_id = d.id and m.state = 'waiting'),
         (select min(m.created_at) from exchange.message m where m.database_id = d.id and m.state = 'queued'),
         a.id, a.state, d.committed_seq, case when d.is_restore_told then d.restored_at end, d.created_at
  from exchange.database d
  left join exchange.process a on a.database_id = d.id and a.state in ('STARTED', 'READY_TO_COMMIT')
  where p_after is null or d.id > p_after
  order by d.id limit p_limit
$$;

-- Clients without their secrets.
create or replace function exchange.clients_shown(p_after text, p_limit integer)
returns table (id text, is_admin boolean, databases text[], recipients text[], created_at timestamptz, may_send boolean, may_take boolean)
language sql stable set search_path from current as $$
  select c.id, c.is_admin, c.databases, c.recipients, c.created_at, c.may_send, c.may_take
  from exchange.client c where p_after is null or c.id > p_after order by c.id limit p_limit
$$;

-- Processes, the latest first.  p_state: one state, or `open` for those that are not ended.
create or replace function exchange.processes_shown(
  p_database text, p_state text, p_before bigint, p_limit integer)
returns table (number bigint, id text, database text, recipient text, owner text, state text, outcome text, started_at timestamptz,
               ready_at timestamptz, ended_at timestamptz, expires_at timestamptz, error text, tries integer, files bigint, replies bigint)
language sql stable set search_path from current as $$
  select p.number, p.id, p.database_id, p.recipient, p.client_id, p.state, p.outcome, p.started_at, p.ready_at, p.ended_at, p.expires_at,
         p.error, p.tries,
         (select count(*) from exchange.process_file f where f.process_id = p.id and not f.is_refused),
         (select count(*) from exchange.message m where m.process_id = p.id and m.kind = 'reply' and m.state <> 'discarded')
  from exchange.process p
  where (p_database is null or p.database_id = p_database)
    and (p_state is null or p.state = p_state
         or p_state = 'open' and p.state in ('STARTED', 'READY_TO_COMMIT', 'UNKNOWN', 'CLEANUP', 'FAILED'))
    and (p_before is null or p.number < p_before)
  order by p.number desc limit p_limit
$$;

-- Messages and replies, the latest first.
create or replace function exchange.messages_shown(
  p_database text, p_state text, p_sender text, p_before bigint, p_limit integer, p_search text default null)
returns table (number bigint, database text, kind text, id text, sender text, recipient text, sequence bigint, order_number bigint,
               state text, folder text, file_name text, size bigint, failures integer, error text, process text,
               created_at timestamptz, finished_at timestamptz)
language sql stable set search_path from current as $$
  select m.number, m.database_id, m.kind, m.id, m.sender, nullif(m.recipient, ''), m.sequence, m.order_number, m.state, m.folder,
         m.file_name, m.size, m.failures, m.error, m.process_id, m.created_at, m.finished_at
  from exchange.message m
  where (p_database is null or m.database_id = p_database) and (p_state is null or m.state = p_state)
    and (p_sender is null or m.sender = p_sender) and (p_before is null or m.number < p_before)
    and (p_search is null
         or position(lower(p_search) in lower(concat_ws(' ', m.id, m.sender, m.recipient, m.file_name))) > 0)
  order by m.number desc limit p_limit
$$;

-- Everything that should lie in a database's folders, in pages by number.
create or replace function exchange.filed(p_database text, p_after bigint, p_limit integer) returns setof jsonb
language sql stable set search_path from current as $$
  select exchange._move(m, v)
  from exchange.message m left join exchange.move v on v.number = m.number
  where m.database_id = p_database and (m.folder is not null or v.number is not null) and m.number > p_after
  order by m.number limit p_limit
$$;

-- Mailboxes with messages older than p_after that no client fetches: addressed to a recipient for which no client may
-- fetch, or in a database that no client names and from which nothing was ever taken, such as one that a typing error made.
-- Visits each mailbox once, however many messages it has.
create or replace function exchange.unserved(p_after interval)
returns table (database text, recipient text, oldest_at timestamptz)
language sql stable set search_path from current as $$
  with recursive mailbox as (
    (select m.database_id, m.recipient from exchange.message m
     where m.state = 'queued' order by m.database_id, m.recipient limit 1)
    union all
    select n.* from mailbox b cross join lateral (
      select m.database_id, m.recipient from exchange.message m
      where m.state = 'queued' and (m.database_id, m.recipient) > (b.database_id, b.recipient)
      order by m.database_id, m.recipient limit 1) n)
  select b.database_id, nullif(b.recipient, ''), o.created_at
  from mailbox b cross join lateral (
    select m.created_at from exchange.message m
    where m.state = 'queued' and m.database_id = b.database_id and m.recipient = b.recipient
    order by coalesce(m.turn, m.number) limit 1) o
  where o.created_at < exchange.now() - p_after
    and case when b.recipient = '' then
          not exists (select from exchange.process p where p.database_id = b.database_id)
          and not exists (select from exchange.client c where c.may_take and b.database_id = any (c.databases))
        else
          not exists (select from exchange.client c
                      where c.may_take and (c.id = b.recipient or b.recipient = any (c.recipients))
                        and (c.databases is null or b.database_id = any (c.databases)))
        end
  order by b.database_id, b.recipient
$$;
