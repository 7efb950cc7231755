-- Request and reply.  A request is a message with headers reply_to (a temporary queue), correlation (its own iid)
-- and reply_by (when it expires); a post adds the other two to a message with reply_to.
-- An answer goes to that queue with the same correlation, if the requester still waits for it.

-- The queue for answers to this session's requests; created with the first one.
create or replace function mbus.reply_queue() returns text
language plpgsql security definer set search_path from current as $$
declare
  v_name text := current_setting('mbus.reply_queue', true);
begin
  if not exists (select from mbus.temporary_queue q
                 where q.name = v_name and q.pid = pg_backend_pid() and q.session = mbus._session()) then
    v_name := mbus._add_temporary_queue(null);
    perform set_config('mbus.reply_queue', v_name, false);
  end if;
  return v_name;
end $$;

create or replace function mbus._ask(p_headers hstore, p_timeout interval, p_reply_to text) returns hstore
language plpgsql set search_path from current as $$
begin
  perform mbus._check_interval('timeout', p_timeout, true, 'The timeout must be positive.');
  if p_reply_to is not null and not mbus._is_temporary(p_reply_to) then
    raise exception 'answers cannot go to "%"', p_reply_to using errcode = 'MB012', hint = 'Use a temporary queue, or omit reply_to.';
  end if;
  return coalesce(p_headers - '{correlation,reply_by}'::text[], '') || hstore('reply_to', coalesce(p_reply_to, mbus.reply_queue()));
end $$;

-- Posts a message that requests an answer, in the caller's transaction, and returns its iid, which is the answer's
-- correlation.  The request expires with the timeout.  Read the answer with mbus.replies in this session, or from
-- the temporary queue reply_to.
-- Errors: as mbus.post; MB012 timeout, reply_to.
create or replace function mbus.request(
  qname text, data anycompatible, headers hstore default null, properties hstore default null,
  timeout interval default '5 seconds', reply_to text default null) returns text
language plpgsql set search_path from current as $$
begin
  return mbus.post(qname, data, mbus._ask(headers, timeout, reply_to), properties, null, mbus.now() + timeout);
end $$;

-- Takes up to amt answers to this session's requests, in the caller's transaction; with wait, polls until there is one or the time has
-- passed.  The requests must be committed first, or they cannot be answered.
-- Errors: MB012 argument, MB014 isolation.
create or replace function mbus.replies(amt integer default 100, wait interval default '0') returns setof mbus.reply_model
language plpgsql security definer set search_path from current rows 100 as $$
declare
  v_name constant text := mbus.reply_queue();
begin
  return query select p.headers -> 'correlation', mbus._iid(v_name, p.number), p.added, p.expires,
         mbus._deliver_temporary(v_name, p), p.properties, case
           when p.data_hstore is not null then 'hstore' when p.data_jsonb is not null then 'jsonb'
           when p.data_text is not null then 'text' when p.data_bytea is not null then 'bytea' end,
         p.data_hstore, p.data_jsonb, p.data_text, p.data_bytea
  from mbus._await_temporary(v_name, amt, wait) p;
end $$;
