create or replace function mbus._queue(p_name text) returns mbus.queue
language plpgsql stable set search_path from current as $$
declare
  v_queue mbus.queue;
begin
  select * into v_queue from mbus.queue where name = p_name;
  if not found then
    raise exception 'queue "%" does not exist', p_name
      using errcode = 'MB001', hint = 'Create it with mbus.create_queue, or see the view mbus.queues.';
  end if;
  return v_queue;
end $$;

create or replace function mbus._consumer(p_queue mbus.queue, p_name text) returns mbus.consumer
language plpgsql stable set search_path from current as $$
declare
  v_consumer mbus.consumer;
begin
  select * into v_consumer from mbus.consumer where queue_id = p_queue.id and name = p_name;
  if not found then
    raise exception 'queue "%" has no consumer "%"', p_queue.name, p_name
      using errcode = 'MB002', hint = 'Create it with mbus.create_consumer, or see the view mbus.consumers.';
  end if;
  return v_consumer;
end $$;

create or replace function mbus._check_name(p_kind text, p_name text) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_name is null or p_name !~ '^[a-z0-9_]+$' then
    raise exception 'invalid % name: "%"', p_kind, coalesce(p_name, 'null') using errcode = 'MB005', hint = 'Use a-z, 0-9 and _ only.';
  end if;
end $$;

-- The names that every queue needs; the length of role names is checked where roles are created, see roles.sql.
create or replace function mbus._check_length(p_queue text, p_consumer text) returns void
language plpgsql stable set search_path from current as $$
declare
  v_longest text;
begin
  select name into v_longest
  from unnest(array[
    'clear_queue_' || p_queue,
    'take_from_' || p_queue || '_by_' || p_consumer,
    'qc$' || p_queue || '$' || p_consumer || '$h255$hint']) name
  order by octet_length(name) desc limit 1;
  if octet_length(v_longest) > 63 then
    raise exception 'the names "%" and "%" are too long: "%" has % bytes',
        p_queue, p_consumer, v_longest, octet_length(v_longest)
      using errcode = 'MB006', hint = 'Functions and tables are named after them, and an identifier has at most 63 bytes.';
  end if;
end $$;

-- Queue a_by_b with consumer c and queue a with consumer b_by_c would both make consume_a_by_b_by_c.
create or replace function mbus._check_collision(p_functions text[]) returns void
language plpgsql stable set search_path from current as $$
declare
  v_taken text;
begin
  select p.proname into v_taken
  from pg_proc p where p.pronamespace = 'mbus'::regnamespace and p.proname = any (p_functions) limit 1;
  if found then
    raise exception 'function mbus.% already exists', v_taken
      using errcode = 'MB007', hint = 'Another queue and consumer have the same function name. Choose another name.';
  end if;
end $$;

-- Refuses a selector that is not one boolean expression over t, that calls anything but immutable functions, or that uses
-- objects of an owner who is not trusted.  Selectors are evaluated in the producer's transaction with the rights of the owner of
-- the bus, so nothing in them may read, write or depend on the session.  No part of the selector runs before the owners of its functions
-- are checked, because the planner would evaluate immutable functions of constants.
-- Takes no locks that outlive the call; the table is created and rolled back.
create or replace function mbus._check_selector(p_queue mbus.queue, p_selector text) returns void
language plpgsql set search_path from current as $$
declare
  v_trial   refcursor;
  v_foreign text;
begin
  if p_selector is null then return; end if;
  if p_selector like '%$function$%' then
    raise syntax_error using message = 'the quote $function$ is used around the function that it becomes part of';
  end if;
  execute format('create table mbus.t (like mbus.%I)', mbus._model(p_queue.payload));
  -- A cursor accepts only one statement.  With a second row in scope a column without t.  is ambiguous, as in the generated functions.  The
  -- planner removes an unreachable branch of CASE, so nothing is evaluated.
  open v_trial for execute format(
    'select true from mbus.t t, mbus.t other where case when false then (%s%s) end', p_selector, e'\n');
  close v_trial;
  execute format('create view mbus.selector_objects as select true from mbus.t t where (%s%s)', p_selector, e'\n');
  select pg_describe_object(d.refclassid, d.refobjid, 0) into v_foreign
  from pg_rewrite r
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.deptype = 'n'
  where r.ev_class = 'mbus.selector_objects'::regclass and not mbus._is_trusted(d.refclassid, d.refobjid) limit 1;
  if found then
    raise insufficient_privilege using message = v_foreign || ' belongs neither to a superuser nor to the owner of schema mbus';
  end if;
  execute format('create index on mbus.t (id) where (%s%s)', p_selector, e'\n');
  raise triggered_action_exception;    -- undoes the table
exception
  when triggered_action_exception then null;
  when lock_not_available or transaction_rollback or insufficient_resources or operator_intervention then raise;
  when others or assert_failure then
    raise exception 'invalid selector: %', p_selector
      using errcode = 'MB008', detail = sqlerrm,
            hint = 'Write a boolean expression over t with immutable functions only, such as (t.properties->''STATE'')=''DONE''.';
end $$;

-- True when an object that a selector uses cannot be changed by users of the bus.
create or replace function mbus._is_trusted(p_class oid, p_object oid) returns boolean
language sql stable set search_path from current as $$
  select bool_and(coalesce(r.rolsuper or r.oid = (select n.nspowner from pg_namespace n where n.nspname = 'mbus'), false))
  from (select p.proowner from pg_proc p where p_class = 'pg_proc'::regclass and p.oid = p_object
        union all select o.oprowner from pg_operator o where p_class = 'pg_operator'::regclass and o.oid = p_object
        union all select p.proowner from pg_operator o join pg_proc p on p.oid = o.oprcode
                  where p_class = 'pg_operator'::regclass and o.oid = p_object
        union all select t.typowner from pg_type t where p_class = 'pg_type'::regclass and t.oid = p_object
        union all select c.relowner from pg_class c where p_class = 'pg_class'::regclass and c.oid = p_object
        union all select null where p_class not in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass,
                                                    'pg_class'::regclass, 'pg_collation'::regclass)) o(owner)
  left join pg_roles r on r.oid = o.owner
$$;

create or replace function mbus._model(p_payload text) returns text
language sql immutable parallel safe set search_path from current as $$
  select 'qt_model' || case p_payload when 'hstore' then '' else '_' || p_payload end
$$;

-- The number of an iid of this queue, which must have been issued here.
create or replace function mbus._number(p_queue text, p_iid text) returns bigint
language plpgsql stable set search_path from current as $$
declare
  v_parts text[] := regexp_match(p_iid, '^([a-z0-9_]+)\.([0-9]{1,18})@([a-z0-9]+)$');
begin
  if v_parts is null or v_parts[1] <> p_queue
     or v_parts[3] <> (select name from mbus.node where is_only)
     or v_parts[2]::bigint > mbus._figure(p_queue, 'position') then
    raise exception 'iid "%" was not issued for queue "%"', coalesce(p_iid, 'null'), p_queue
      using errcode = 'MB009', hint = format('Get one with mbus.get_iid(%L).', p_queue);
  end if;
  return v_parts[2]::bigint;
end $$;

create or replace function mbus._check_isolation() returns void
language plpgsql stable set search_path from current as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'this call needs READ COMMITTED, this transaction is %',
        upper(current_setting('transaction_isolation'))
      using errcode = 'MB014', hint = 'Begin with: begin isolation level read committed.';
  end if;
end $$;

-- Clients can represent the years 1 to 9999 in any time zone, hence a day less at both ends.  A message with a time outside this range
-- would stop every client that receives it.
create or replace function mbus._check_time(p_what text, p_time timestamptz) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_time < '0001-01-02 00:00+00' or p_time > '9999-12-30 00:00+00' then
    raise exception 'invalid %: %', p_what, p_time
      using errcode = 'MB012', hint = 'Use a time between the years 1 and 9999; leave it out for none.';
  end if;
end $$;

create or replace function mbus._check_amount(p_amount integer) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_amount is null or p_amount < 0 then
    raise exception 'invalid amount: %', coalesce(p_amount::text, 'null') using errcode = 'MB012', hint = 'Ask for zero or more messages.';
  end if;
end $$;

create or replace function mbus._check_interval(p_what text, p_value interval, p_is_positive boolean, p_hint text) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_value < '0' or p_value > mbus._longest() or p_is_positive and coalesce(p_value, '0') = '0' then
    raise exception 'invalid %: %', p_what, coalesce(p_value::text, 'null') using errcode = 'MB012', hint = p_hint;
  end if;
end $$;
