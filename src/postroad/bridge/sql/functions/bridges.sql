-- Registers a bridge; idempotent.  Errors: MR002 another bridge has that name.
create or replace function bridge.register(
  p_name text, p_kind text, p_source text, p_target text, p_queue text, p_queue_at_target text,
  p_selector text default null, p_options jsonb default '{}')
returns void
language plpgsql security definer set search_path from current as $$
declare
  v_old bridge.bridge;
begin
  insert into bridge.bridge (name, kind, source, target, queue, queue_at_target, selector, options)
  values (p_name, p_kind, p_source, p_target, p_queue, p_queue_at_target, p_selector, p_options)
  on conflict (name) do nothing;
  select * into v_old from bridge.bridge where name = p_name;
  if (v_old.kind, v_old.source, v_old.target, v_old.queue, v_old.queue_at_target, v_old.selector, v_old.options)
     is distinct from (p_kind, p_source, p_target, p_queue, p_queue_at_target, p_selector, p_options) then
    raise exception 'bridge "%" exists already and is another one', p_name
      using errcode = 'MR002', hint = 'Choose another name, or remove it with postroad bridge remove.';
  end if;
end $$;

-- Removes a bridge from the register; its ends are closed one by one.
create or replace function bridge.unregister(p_name text) returns boolean
language sql security definer set search_path from current as $$
  with gone as (delete from bridge.bridge b where b.name = p_name returning 1) select exists (select from gone)
$$;
