-- Messages that the current transaction has taken.  Its deletes are invisible to the transaction itself, so takes record
-- them in the transaction-local setting mbus.taken: one line per take, "<consumer id>:{numbers}{histories by number}".  A rollback
-- to a savepoint restores the setting together with the messages.
-- Only the last 100,000 characters are kept, which bounds the cost of a transaction that takes thousands of messages one by
-- one; the first element of the split text is empty, or cut off.
-- Users can change the setting, so it grants nothing: a message returns only to a consumer that the user may consume as.

create or replace function mbus._note_taken(p_parcels mbus.parcel[], p_consumer_id integer default null) returns void
language sql set search_path from current as $$
  select set_config('mbus.taken', concat(right(current_setting('mbus.taken', true), 100000), string_agg(l.line, '')), true)
  from (
    select concat(e'\n', c.id, ':', array_agg(p.number), jsonb_object_agg(p.number, p.trail) filter (where p.trail is not null)) as line
    from unnest(p_parcels) p cross join unnest(coalesce(p.recipients, array[p_consumer_id])) c(id) group by c.id) l
  having count(*) > 0
$$;

-- The messages that the current transaction has taken and not given back.
create or replace function mbus._taken_here() returns table (consumer_id integer, number bigint, trail jsonb)
language sql volatile set search_path from current as $$
  select distinct on (l.consumer_id, n.number) l.consumer_id, n.number, nullif(l.trails -> n.number::text, 'null')
  from (
    select split_part(t.line, ':', 1)::integer as consumer_id, substring(t.line from '\{[0-9,]*\}')::bigint[] as numbers,
           substring(t.line from '\}(\{.*)$')::jsonb as trails, t.place
    from unnest(string_to_array(current_setting('mbus.taken', true), e'\n')) with ordinality t(line, place)
    where t.place > 1) l
  cross join unnest(l.numbers) n(number)
  order by l.consumer_id, n.number, l.place desc
$$;

-- Raises MB025 if the message is absent because the current transaction took it.
create or replace function mbus._check_not_taken_here(p_consumer_id integer, p_number bigint, p_iid text) returns void
language plpgsql set search_path from current as $$
begin
  if split_part(current_setting('mbus.taken', true), e'\n', 1) <> ''
     or exists (select from mbus._taken_here() t where t.consumer_id = p_consumer_id and t.number = p_number) then
    raise exception 'message "%" was taken by this transaction', p_iid
      using errcode = 'MB025', hint = 'Call mbus.give_back with the message, or roll back first.';
  end if;
end $$;

-- The message that a post under this iid gives back: the current transaction took it, from its own queue or, moved, from
-- another one.
--   queue_id, number   where it was taken from
--   consumers          whose copies they are
--   moved              history of a message posted to another queue than its iid's
create or replace function mbus._taken_under(
  p_iid text, out queue_id integer, out number bigint, out consumers integer[], out moved jsonb)
language sql volatile set search_path from current as $$
  select q.id, t.number, array_agg(c.id), max(case when t.trail ? 'moved_from' then t.trail::text end)::jsonb
  from mbus._taken_here() t
  join mbus.consumer c on c.id = t.consumer_id
  join mbus.queue q on q.id = c.queue_id
  where p_iid in (mbus._iid(q.name, t.number), t.trail ->> 'moved_from')
    and mbus._may_consume(q, c.name) and mbus._state(q, c.id, t.number) = 'gone'
  group by q.id, t.number
  limit 1
$$;
