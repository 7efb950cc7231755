-- Messages that the current transaction has taken.  Its deletes are invisible to the transaction itself, so takes record
-- them in the transaction-local setting mbus.taken: one line per take, "<consumer id>:{numbers}{histories by number}".
-- Only the last 100,000 characters are kept, for transactions that take thousands of messages one by one; the first line may be cut off.
-- Users can change the setting, so it grants no permission: a message returns only to a consumer that the user may consume as.

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
