-- Takes the first ready message of a consumer that matches a selector given with the call, in the caller's
-- transaction, or nothing.  It reads the first 1,000 ready messages; create a consumer for a selector that is used
-- often.  Of a group only the first message can be taken.
-- The selector runs with the caller's permissions, on rows that the caller is permitted to take.
-- Errors: MB001, MB002, MB008 selector, MB013 role, MB014 isolation, MB019 payload.
create or replace function mbus.dyn_consume(qname text, selector text default '(1=1)', cname text default 'default')
returns setof mbus.qt_model
language plpgsql set search_path from current rows 1 as $$
declare
  v_amount integer;
  v_shown  mbus.qt_model[];
  v_hit    record;
begin
  perform mbus._check_dispatch(qname, coalesce(cname, 'null'), 'consume_' || qname || '_by_' || coalesce(cname, 'null'));
  foreach v_amount in array '{50,1000}'::integer[] loop    -- few first, because copying rows costs
    v_shown := array(select s from mbus._show(qname, cname, v_amount) s);
    for v_hit in select * from mbus._select(v_shown, selector) loop
      if mbus._claim(qname, cname, v_hit.iid, v_hit.group_name) then
        return query execute format('select * from mbus.%I($1)', 'take_from_' || qname || '_by_' || cname) using v_hit.iid;
        return;
      end if;
    end loop;
    exit when cardinality(v_shown) < v_amount;
  end loop;
end $$;

-- The matching messages, in order.  Security invoker, because the caller's text runs here.
create or replace function mbus._select(p_messages mbus.qt_model[], p_selector text) returns table (iid text, group_name text)
language plpgsql set search_path from current as $$
begin
  if p_selector is null then
    raise syntax_error using message = 'there is no selector';
  end if;
  return query execute format(
    e'select t.iid, t.headers -> ''group'' from unnest($1) with ordinality
        t(id, added, iid, delayed_until, expires, received, headers, properties, data, place_of_message)
      where (%s\n) order by t.place_of_message', p_selector) using p_messages;
exception when syntax_error_or_access_rule_violation or feature_not_supported or data_exception then
  raise exception 'invalid selector: %', coalesce(p_selector, 'null')
    using errcode = 'MB008', detail = sqlerrm,
          hint = 'Write a boolean expression over t, such as (t.properties->''STATE'')=''DONE''.';
end $$;

-- Creates run_on_<qname>(exec text) integer: see templates/run_on.sql.
-- Errors: MB001, MB002 if the queue has no consumer "default".
create or replace function mbus.create_run_function(qname text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue mbus.queue := mbus._alter((mbus._queue(qname)).id);
begin
  perform mbus._consumer(v_queue, 'default');
  execute mbus._fill('run_on', mbus._queue_values(v_queue));
  perform mbus._grant(v_queue);
end $$;

-- Refuses a statement that cannot run for any message, before a message is taken.  All effects of the check are undone,
-- including the prepared statement, which a rollback would leave.  Security invoker, because the statement comes from the caller.
create or replace function mbus._check_statement(p_statement text, p_model text) returns void
language plpgsql as $$
begin
  if p_statement is null then
    raise syntax_error using message = 'there is no statement';
  end if;
  execute pg_catalog.format('prepare mbus_run_on (mbus.%I) as %s', p_model, p_statement);
  if exists (select from pg_catalog.pg_prepared_statements s
             where s.name = 'mbus_run_on' and pg_catalog.cardinality(s.parameter_types) > 1) then
    raise syntax_error using message = '$1 is the only parameter';
  end if;
  raise triggered_action_exception;    -- undoes what came after the statement, if anything did
exception
  when others or assert_failure then
    if exists (select from pg_catalog.pg_prepared_statements s where s.name = 'mbus_run_on') then
      deallocate mbus_run_on;
    end if;
    if sqlstate operator(pg_catalog.<>) '09000' then
      raise exception 'the statement cannot be run: %', sqlerrm
        using errcode = 'MB012',
              hint = 'Write one SELECT, INSERT, UPDATE, DELETE or MERGE; the message is $1, as in ($1).data.';
    end if;
end $$;
