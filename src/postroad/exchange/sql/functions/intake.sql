-- Stores messages, any number in one transaction; returns an answer for each, in the given order:
--   new       a row was inserted; its file has its temporary name and is to be renamed
--   same      a repeated message; nothing changed, unless its file was missing: then this file replaces it
--   other     the sender used the id for other content; nothing changed
--   case      an id of the sender differs only by case; nothing changed
-- Locks: lanes by (database, sender), so that two batches cannot deadlock.
create or replace function exchange.intake(p_epoch bigint, p_items jsonb)
returns table (item integer, answer text, number bigint, sequence bigint, file_name text, folder text, is_pending boolean, temporary text, version bigint)
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_item  record;
  v_found exchange.message;
begin
  perform exchange._enter(p_epoch);
  for v_item in
    select i.* from jsonb_to_recordset(p_items) as i (
      item integer, database text, sender text, id text, recipient text, order_number bigint, size bigint, sha256 text,
      digest text, media_type text, is_group boolean, temporary text, traceparent text)
    order by i.database, i.sender, i.item
  loop
    select m.* into v_found from exchange.message m
    where m.sender = v_item.sender and lower(m.id) = lower(v_item.id) and m.kind = 'message';
    item := v_item.item;
    answer := null;
    if v_found.number is null then
      insert into exchange.lane as l (database_id, sender, sequence) values (v_item.database, v_item.sender, 1)
      on conflict on constraint lane_pkey do update set sequence = l.sequence + 1
      returning l.sequence into v_found.sequence;
      insert into exchange.message as m (
        database_id, kind, sender, id, name, sequence, recipient, order_number, state, file_name, size, sha256, digest,
        media_type, is_group, folder, traceparent, object)
      values (
        v_item.database, 'message', v_item.sender, v_item.id, v_item.id, v_found.sequence, coalesce(v_item.recipient, ''),
        v_item.order_number, 'queued',
        exchange._file_name(v_found.sequence, v_item.id, v_item.sender, v_item.recipient, v_item.media_type),
        v_item.size, v_item.sha256, v_item.digest, v_item.media_type, v_item.is_group, 'Messages', v_item.traceparent,
        exchange._object(v_item.temporary))
      on conflict do nothing returning m.* into v_found;
      if found then
        answer := 'new';
        insert into exchange.move as v (number, temporary) values (v_found.number, v_item.temporary)
        returning v.version into version;
      else
        -- Another transaction has committed the same id: the insert waited for it.
        select m.* into v_found from exchange.message m
        where m.sender = v_item.sender and lower(m.id) = lower(v_item.id) and m.kind = 'message';
      end if;
    end if;
    answer := case when answer = 'new' then 'new'
                   when v_found.id <> v_item.id then 'case'
                   when v_found.digest <> v_item.digest or v_found.database_id <> v_item.database then 'other'
                   else 'same' end;
    number := v_found.number;
    sequence := v_found.sequence;
    file_name := v_found.file_name;
    folder := v_found.folder;
    temporary := v_item.temporary;
    is_pending := answer = 'new';
    if answer = 'same' and v_found.state = 'parked' and v_found.folder is null then
      -- Its file was missing, and this file replaces it.  A message that was parked because of its file is queued; any other stays parked.
      update exchange.message m
      set state = case when m.is_parked_by_file then 'queued' else m.state end,
          folder = case when m.is_parked_by_file then 'Messages' else 'Error' end,
          error = case when m.is_parked_by_file then null else m.error end,
          finished_at = case when m.is_parked_by_file then null else m.finished_at end, is_parked_by_file = false,
          object = exchange._object(v_item.temporary)
      where m.number = v_found.number and m.state = 'parked' and m.folder is null returning m.folder into folder;
      if found then
        update exchange.move v set temporary = v_item.temporary where v.number = v_found.number;
        perform alerts.clear(format('exchange/corrupt/%s', v_found.number));
      else
        -- Another transaction has done it.
        select m.folder into folder from exchange.message m where m.number = v_found.number;
      end if;
    end if;
    if answer = 'same' and v_found.state <> 'parked' then
      -- The message was requeued before its file was restored: this is the file.
      update exchange.move v set temporary = v_item.temporary, version = nextval('exchange.move_version')
      where v.number = v_found.number and v.source is null and v.temporary is null;
      if found then
        update exchange.message m set object = exchange._object(v_item.temporary) where m.number = v_found.number;
      end if;
    end if;
    if answer = 'same' then
      -- A file that has its final name is moved by other calls.
      select v.temporary, true, v.version into temporary, is_pending, version from exchange.move v
      where v.number = v_found.number and v.temporary is not null and v.source is null;
      is_pending := coalesce(is_pending, false);
    end if;
    return next;
  end loop;
end $$;

-- Readable, safe and unique: ids hold no slash, and a sender uses each sequence number once.  Ids may hold `_from_`
-- and `_to_`; where a name could be read in two ways, the lengths of id and sender follow a `~`, which no id holds.
create or replace function exchange._file_name(
  p_sequence bigint, p_id text, p_sender text, p_recipient text, p_media_type text) returns text
language sql immutable set search_path from current as $$
  select p_sequence || n.name
         || case when n.name ~ '_from_.*_from_|_from_from_|_to_.*_to_|_to_to_' then format('~%s-%s', length(p_id), length(p_sender)) else '' end
         || case when p_media_type is null then '.json' else '.bin' end
  from (select format('_%s_from_%s_to_%s', p_id, p_sender, coalesce(nullif(p_recipient, ''), 'any'))) n (name)
$$;

-- Whether a sender has used an id before: null for a new one, otherwise same, other or case as above.
create or replace function exchange.known_id(p_database text, p_sender text, p_id text) returns text
language sql stable set search_path from current as $$
  select case when m.id <> p_id then 'case' when m.database_id <> p_database then 'other' else 'same' end
  from exchange.message m where m.sender = p_sender and lower(m.id) = lower(p_id) and m.kind = 'message'
$$;
