-- Posts many messages in the caller's transaction and returns their iids, in order.
-- headers and properties: null, one element for all, or one element per message.
create or replace function mbus.postn_{queue}(
  data {payload}[], headers hstore[] default null, properties hstore[] default null,
  delayed_until timestamptz default null, expires timestamptz default null) returns text[]
language plpgsql security definer set search_path from current as $function$
declare
  v_count      constant integer := coalesce(cardinality($1), 0);
  v_headers    hstore[] := case when $2 is not null then mbus._spread('headers', $2, v_count) end;
  v_properties constant hstore[] := case when $3 is not null then mbus._spread('properties', $3, v_count) end;
  v_now        constant timestamptz := mbus.now();
  v_one_by_one boolean;
  v_generation bigint;
  v_ids        bigint[];
{hit_declarations}
begin
  if $4 is not null or $5 is not null then
    perform mbus._check_expiry($4, $5);
  end if;
  -- Messages that need individual decisions are posted one by one.  The arrays of the others are not read by subscript: in a custom plan
  -- they are constants, and a subscript walks over all texts before its own.
  v_one_by_one := {followed}$4 is not null
    or $2 is not null and exists (
    select from unnest($2) h where h ?| '{priority,dedup_key,unique_key,debounce,consume_after}'
      or h ? 'group' and (not {has_groups} or octet_length(h -> 'group') > 500));
  if not v_one_by_one then
    v_ids := array(select nextval('mbus.{position}') from generate_series(1, v_count));
    if $2 is not null and exists (select from unnest($2) h where h ? 'reply_to') then
      v_headers := array(
        select case when m.headers ? 'reply_to'
                    then mbus._correlate(m.headers, '{queue}.' || m.id || '@{node}', $5) else m.headers end
        from unnest(v_ids, v_headers) with ordinality m(id, headers, place) order by m.place);
    end if;
    if $2 is not null and exists (select from unnest($2) h where h ? 'seenby') then
      v_headers := mbus._seen_all(v_headers);
    end if;
{hits}
  end if;
  if v_one_by_one then
    return array(
      select mbus.post_{queue}(m.data, m.headers, m.properties, $4, $5)
      from unnest($1, v_headers, v_properties) with ordinality m(data, headers, properties, place)
      order by m.place);
  end if;
{conform}  loop
    exit when v_count = 0;
    v_generation := pg_sequence_last_value('mbus.{tail}');
    case v_generation % {slots}
{branches}
    end case;
    exit when found;
  end loop;
  return array(select '{queue}.' || id || '@{node}' from unnest(v_ids) id);
end $function$;
