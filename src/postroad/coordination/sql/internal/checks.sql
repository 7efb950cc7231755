-- Raises an error with a code, a message and a hint, if the condition is true.
create or replace function coordination._refuse_if(p_condition boolean, p_code text, p_message text, p_hint text) returns void
language plpgsql set search_path from current as $$
begin
  if p_condition then raise exception using errcode = p_code, message = p_message, hint = p_hint; end if;
end $$;

-- Checks that this database has the role that a call requires.  Raises PC010.
create or replace function coordination._require(p_role text) returns text
language plpgsql stable set search_path from current as $$
declare
  v_name text;
begin
  select n.name into v_name from coordination.node n where n.role = p_role;
  if v_name is null then
    perform coordination._refuse_if(true, 'PC010', format('this database is no %s', p_role),
      format('run select coordination.become(%L, …) here, or name the right database', p_role));
  end if;
  return v_name;
end $$;

-- The states of events and payloads by the numbers of the seed, whose list of events skips 4; and the order in which an event passes them.
-- Immutable and without a search_path, so that the planner replaces a call by its number.
create or replace function coordination._statuses() returns text[]
language sql immutable parallel safe
return '{Created,Saving,Saved,null,Activated,Preparing,Prepared,Committing,Committed,Canceling,Canceled,Processing,Processed}'::text[];

create or replace function coordination._status(p_name text) returns integer
language sql immutable parallel safe
return array_position(coordination._statuses(), p_name);

create or replace function coordination._status_name(p_id integer) returns text
language sql immutable parallel safe
return (coordination._statuses())[p_id];

create or replace function coordination._payload_status(p_name text) returns integer
language sql immutable parallel safe
return array_position('{Created,Prepared,Processed,Saved}'::text[], p_name);

create or replace function coordination._rank(p_name text) returns integer
language sql immutable parallel safe
return array_position(
  '{Created,Saving,Saved,Activated,Preparing,Prepared,Processing,Processed,Committing,Canceling,Committed,Canceled}'::text[], p_name);

-- Serialises the changes that a role makes to its own tables; the lock is held to the end of the transaction.
create or replace function coordination._try_lock(p_which integer) returns boolean
language sql volatile
return pg_try_advisory_xact_lock(737001, p_which);

create or replace function coordination._lock(p_which integer) returns void
language sql volatile
return pg_advisory_xact_lock(737001, p_which);
