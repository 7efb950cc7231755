-- Copies of posted messages: for triggers, which are statements of the queue's own function mbus._follow_<q>, and for
-- temporary consumers, which change often and are therefore read from their table.

-- Adds the iid and the deadline to the headers of a request, so that it can be answered.
create or replace function mbus._correlate(p_headers hstore, p_iid text, p_expires timestamptz) returns hstore
language sql immutable set search_path from current as $$
  select case when p_headers ? 'correlation' then p_headers else p_headers || hstore('correlation', p_iid) end
      || case when p_expires is null then ''::hstore else hstore('reply_by', p_expires::text) end
$$;

-- The headers of a copy: those of the message, the time when it was first posted, and its iid.  Keys are removed, because they
-- have already prevented duplicates; the copies of debounced messages are debounced themselves, under a key of this queue.
create or replace function mbus._copy_headers(p_parcel mbus.parcel, p_iid text) returns hstore
language sql stable set search_path from current as $$
  select hstore('enqueue_time', p_parcel.added::text) || hstore('origin_iid', p_iid)
      || case when p_parcel.headers ? 'reply_to' then mbus._correlate(p_parcel.headers, p_iid, p_parcel.expires)
              else coalesce(p_parcel.headers, '') end - '{dedup_key,dedup_window,unique_key}'::text[]
      || case when p_parcel.headers ? 'debounce'
              then hstore('unique_key', md5(split_part(p_iid, '.', 1) || '/' || (p_parcel.headers -> 'unique_key'))) else ''::hstore end
$$;

-- A copy whose selector raised an error goes to the dmq of the destination's first consumer.
create or replace function mbus._bury_copy(
  p_destination_id integer, p_parcel mbus.parcel, p_headers hstore, p_error text) returns void
language plpgsql set search_path from current as $$
begin
  p_parcel.headers := p_headers;
  perform mbus._bury(c.id, p_parcel, nextval(c.position), p_error)
  from (select n.id, q.position from mbus.queue q join mbus.consumer n on n.queue_id = q.id
        where q.id = p_destination_id order by n.name <> 'default', n.id limit 1) c;
end $$;

-- Copies a message to the temporary consumers of its queue.  They may see only the messages of consumer default, so its selector decides
-- first, and a copy for which it raises an error is withheld.
create or replace function mbus._temporary_follow(
  p_queue_id integer, p_message anyelement, p_parcel mbus.parcel, p_headers hstore) returns void
language plpgsql set search_path from current as $$
declare
  v_limit    constant text := (select c.selector from mbus.consumer c where c.queue_id = p_queue_id and c.name = 'default');
  v_follower mbus.follower;
  v_is_hit   boolean;
  v_error    text;
  v_parcel   mbus.parcel := p_parcel;
begin
  if v_limit is not null then
    begin
      if not coalesce(mbus._is_selected(p_message, v_limit), false) then return; end if;
    exception when others or assert_failure then
      return;
    end;
  end if;
  for v_follower in select * from mbus.follower f where f.queue_id = p_queue_id and f.temporary_name is not null loop
    v_is_hit := true;
    v_error := null;
    if v_follower.selector is not null then
      begin
        v_is_hit := mbus._is_selected(p_message, v_follower.selector);
      exception when others or assert_failure then
        v_error := sqlerrm;
      end;
    end if;
    if v_is_hit then
      v_parcel.headers := p_headers
        || case when v_error is null then ''::hstore else hstore('selector_error', v_error) end;
      perform mbus._temporary_put(array[v_follower.temporary_name], array[v_parcel]);
    end if;
  end loop;
end $$;

-- Evaluates a selector that is given as text.
create or replace function mbus._is_selected(p_message anyelement, p_selector text) returns boolean
language plpgsql set search_path from current as $$
declare
  v_is_hit boolean;
begin
  execute format(e'select (%s\n) from (select ($1).*) t', p_selector) into v_is_hit using p_message;
  return v_is_hit;
end $$;
