-- What the next process of a database gets: in order of each sender, the first always, then while the limits hold.
-- A message that failed too often is offered alone.  Reads by index no more than it hands out.
create or replace function exchange._pick(
  p_database exchange.database, p_recipient text, p_senders text[], p_max_files integer, p_max_bytes bigint,
  p_server exchange.server)
returns bigint[]
language plpgsql stable set search_path from current set enable_seqscan to off set enable_bitmapscan to off as $$
declare
  v_found     bigint[] := '{}';
  v_bytes     bigint := 0;
  v_blocked   text[] := '{}';
  v_candidate record;
begin
  if coalesce(p_database.policy, p_server.failed_policy) = 'wait' then
    select coalesce(array_agg(distinct m.sender), '{}') into v_blocked
    from exchange.message m where m.database_id = p_database.id and m.state = 'parked' and m.kind = 'message';
  end if;
  for v_candidate in
    select c.number, c.size, c.is_suspect
    from (
      (select m.number, m.rank, m.size,
              m.failures >= p_server.suspect_after or m.expiries >= 3 * p_server.suspect_after as is_suspect
       from exchange.message m
       where m.database_id = p_database.id and m.recipient = '' and m.state = 'queued'
         and p_senders is null and m.sender <> all (v_blocked)
       order by m.rank, m.number limit p_max_files)
      union all
      (select m.number, m.rank, m.size,
              m.failures >= p_server.suspect_after or m.expiries >= 3 * p_server.suspect_after
       from exchange.message m
       where m.database_id = p_database.id and m.recipient = p_recipient and m.state = 'queued'
         and p_senders is null and m.sender <> all (v_blocked)
       order by m.rank, m.number limit p_max_files)
      union all
      (select of_sender.*
       from (select distinct s.sender from unnest(p_senders) s (sender)) wanted
       cross join unnest(array['', p_recipient]) r (recipient)
       cross join lateral (
         select m.number, m.rank, m.size,
                m.failures >= p_server.suspect_after or m.expiries >= 3 * p_server.suspect_after
         from exchange.message m
         where m.database_id = p_database.id and m.recipient = r.recipient and m.sender = wanted.sender
           and m.state = 'queued' and m.sender <> all (v_blocked)
         order by m.rank, m.number limit p_max_files) of_sender)
    ) c
    order by c.rank, c.number limit p_max_files
  loop
    exit when v_found <> '{}' and (v_candidate.is_suspect or v_bytes + v_candidate.size > p_max_bytes);
    v_found := v_found || v_candidate.number;
    v_bytes := v_bytes + v_candidate.size;
    exit when v_candidate.is_suspect;
  end loop;
  return v_found;
end $$;
