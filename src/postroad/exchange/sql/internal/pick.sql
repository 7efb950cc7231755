-- The messages of the next process of a database: at least one, and as many as fit in the limits.
-- Each of the oldest messages is a slot of its sender, in order of arrival, and a slot is filled with its sender's next message: by
-- `order` where it is given, then by arrival.  A slot is used once: the message that it belonged to gets the slot of the one that
-- was handed out in its place.  So a sender that gives an order is not served before others.
-- A message that failed too often is offered alone.  Reads by index no more than twice what it hands out.
create or replace function exchange._pick(
  p_database exchange.database, p_recipient text, p_senders text[], p_max_files integer, p_max_bytes bigint,
  p_server exchange.server)
returns bigint[]
language plpgsql volatile set search_path from current set enable_seqscan to off set enable_bitmapscan to off as $$
declare
  v_found     bigint[] := '{}';
  v_slots     bigint[] := '{}';
  v_owners    bigint[] := '{}';
  v_bytes     bigint := 0;
  v_blocked   text[] := '{}';
  v_candidate record;
begin
  if coalesce(p_database.policy, p_server.failed_policy) = 'wait' then
    select coalesce(array_agg(distinct m.sender), '{}') into v_blocked
    from exchange.message m where m.database_id = p_database.id and m.state = 'parked' and m.kind = 'message';
  end if;
  for v_candidate in
    with oldest as (
      (select of_all.* from unnest(array['', p_recipient]) r (recipient)
       cross join lateral (
         select m.sender, m.number, coalesce(m.turn, m.number) as slot from exchange.message m
         where m.database_id = p_database.id and m.recipient = r.recipient and m.state = 'queued'
           and p_senders is null and m.sender <> all (v_blocked)
         order by coalesce(m.turn, m.number) limit p_max_files) of_all)
      union all
      -- The next messages by order, for senders that are named.
      (select of_sender.* from (select distinct s.sender from unnest(p_senders) s (sender)) wanted
       cross join unnest(array['', p_recipient]) r (recipient)
       cross join lateral (
         select m.sender, m.number, coalesce(m.turn, m.number) as slot from exchange.message m
         where m.database_id = p_database.id and m.recipient = r.recipient and m.sender = wanted.sender
           and m.state = 'queued' and m.sender <> all (v_blocked)
         order by m.rank, m.number limit p_max_files) of_sender)),
    slot as (
      select o.sender, o.number, o.slot, row_number() over (partition by o.sender order by o.slot) as place
      from (select * from oldest order by slot limit p_max_files) o),
    next as (
      select of_sender.*, row_number() over (partition by of_sender.sender order by of_sender.rank, of_sender.number) as place
      from (select t.sender, count(*) as slots from slot t group by t.sender) s
      cross join unnest(array['', p_recipient]) r (recipient)
      cross join lateral (
        select m.sender, m.number, m.rank, m.size,
               m.failures >= p_server.suspect_after or m.expiries >= 3 * p_server.suspect_after as is_suspect
        from exchange.message m
        where m.database_id = p_database.id and m.recipient = r.recipient and m.sender = s.sender and m.state = 'queued'
        order by m.rank, m.number limit s.slots) of_sender)
    select n.number, n.size, n.is_suspect, t.slot, t.number as owner
    from slot t join next n on n.sender = t.sender and n.place = t.place
    order by t.slot
  loop
    exit when v_found <> '{}' and (v_candidate.is_suspect or v_bytes + v_candidate.size > p_max_bytes);
    v_found := v_found || v_candidate.number;
    v_slots := v_slots || v_candidate.slot;
    v_owners := v_owners || v_candidate.owner;
    v_bytes := v_bytes + v_candidate.size;
    exit when v_candidate.is_suspect;
  end loop;
  if v_found <> v_owners then
    -- Not all slots were the messages' own: each gets the slot in which it was picked, and those whose slots these were get,
    -- sender by sender, the ones that are left over.
    with spare as (
      select m.sender, coalesce(m.turn, m.number) as slot,
             row_number() over (partition by m.sender order by coalesce(m.turn, m.number)) as place
      from exchange.message m where m.number = any (v_found) and m.number <> all (v_owners)),
    passed as (
      select m.sender, m.number, row_number() over (partition by m.sender order by coalesce(m.turn, m.number)) as place
      from exchange.message m where m.number = any (v_owners) and m.number <> all (v_found)),
    given as (
      select u.number, u.slot from unnest(v_found, v_slots) u (number, slot)
      union all
      select p.number, s.slot from passed p join spare s on s.sender = p.sender and s.place = p.place)
    update exchange.message m set turn = g.slot from given g
    where m.number = g.number and coalesce(m.turn, m.number) <> g.slot;
  end if;
  return v_found;
end $$;
