-- Return rows by name.  Errors: MR001, MB001.

create or replace function bridge._outlet(p_name text) returns bridge.outlet
language plpgsql stable set search_path from current as $$
declare
  v_outlet bridge.outlet;
begin
  select * into v_outlet from bridge.outlet where name = p_name;
  if not found then
    raise exception 'bridge "%" does not leave from database "%"', p_name, current_database()
      using errcode = 'MR001', hint = 'Add it with postroad bridge add, or see bridge.outlets.';
  end if;
  return v_outlet;
end $$;

create or replace function bridge._inlet(p_name text, p_source text) returns bridge.inlet
language plpgsql stable set search_path from current as $$
declare
  v_inlet bridge.inlet;
begin
  select * into v_inlet from bridge.inlet where name = p_name and source = p_source;
  if not found then
    raise exception 'bridge "%" does not arrive in database "%"', p_name, current_database()
      using errcode = 'MR001', hint = 'Add it with postroad bridge add, or see bridge.inlets.';
  end if;
  return v_inlet;
end $$;

create or replace function bridge._payload(p_queue text) returns text
language plpgsql stable set search_path from current as $$
declare
  v_payload text;
begin
  select q.payload into v_payload from mbus.queue q where q.name = p_queue;
  if not found then
    raise exception 'queue "%" does not exist in database "%"', p_queue, current_database()
      using errcode = 'MB001', hint = 'Create it with mbus.create_queue.';
  end if;
  return v_payload;
end $$;

-- The class of the schema's advisory locks.
create or replace function bridge._lock_class() returns integer
language sql immutable parallel safe set search_path from current as $$ select hashtext('bridge') $$;
