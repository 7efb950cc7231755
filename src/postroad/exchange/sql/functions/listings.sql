-- Lists for administrators.  All read-only.

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

-- Every file that belongs in the folders of a database, in pages by number.
create or replace function exchange.filed(p_database text, p_after bigint, p_limit integer) returns setof jsonb
language sql stable set search_path from current as $$
  select exchange._move(m, v)
  from exchange.message m left join exchange.move v on v.number = m.number
  where m.database_id = p_database and (m.folder is not null or v.number is not null) and m.number > p_after
  order by m.number limit p_limit
$$;

-- Mailboxes with messages older than p_after that no client fetches: addressed to a recipient for which no client may
-- fetch, or in a database that no client has a right on and that never had a process, such as a mistyped one.
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
