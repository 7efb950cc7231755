-- Refuses with a code, a sentence and what to do about it.
create or replace function coordination._refuse(p_code text, p_message text, p_hint text default null) returns void
language plpgsql set search_path from current as $$
begin
  raise exception using errcode = p_code, message = p_message, hint = coalesce(p_hint, '');
end $$;

-- The role that this database must play for a call.  Raises PC010.
create or replace function coordination._require(p_role text) returns text
language plpgsql stable set search_path from current as $$
declare
  v_name text;
begin
  select n.name into v_name from coordination.node n where n.role = p_role;
  if v_name is null then
    perform coordination._refuse('PC010', format('this database is no %s', p_role),
      format('run select coordination.become(%L, …) here, or name the right database', p_role));
  end if;
  return v_name;
end $$;

create or replace function coordination._status(p_name text) returns integer
language sql immutable parallel safe
return case p_name when 'Created' then 1 when 'Saving' then 2 when 'Saved' then 3 when 'Activated' then 5
  when 'Preparing' then 6 when 'Prepared' then 7 when 'Committing' then 8 when 'Committed' then 9
  when 'Canceling' then 10 when 'Canceled' then 11 when 'Processing' then 12 when 'Processed' then 13 end;

create or replace function coordination._status_name(p_id integer) returns text
language sql immutable parallel safe
return case p_id when 1 then 'Created' when 2 then 'Saving' when 3 then 'Saved' when 5 then 'Activated'
  when 6 then 'Preparing' when 7 then 'Prepared' when 8 then 'Committing' when 9 then 'Committed'
  when 10 then 'Canceling' when 11 then 'Canceled' when 12 then 'Processing' when 13 then 'Processed' end;

-- Serialises everything that a role does to its own books; held to the end of the transaction.
create or replace function coordination._try_lock(p_which integer) returns boolean
language sql volatile
return pg_try_advisory_xact_lock(737001, p_which);

create or replace function coordination._lock(p_which integer) returns void
language sql volatile
return pg_advisory_xact_lock(737001, p_which);
