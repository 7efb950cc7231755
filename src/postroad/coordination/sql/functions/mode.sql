-- Sets the mode of this transaction's event, replicate or two-phase, whatever the mode of its entities.  Raises PC002.
create or replace function coordination.set_mode(p_mode text) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._refuse_if(p_mode not in ('replicate', 'two-phase'), 'PC002', format('unknown mode %s', left(p_mode, 80)),
    'replicate or two-phase');
  perform set_config('coordination.mode', p_mode, true);
  update coordination."AppEvent" e set "Mode" = p_mode where e."Id" = coordination.current_event();
end $$;

-- The event that this transaction writes, for ?after= of the Gateway; null before its first change.
create or replace function coordination.current_event() returns bigint
language sql stable security definer set search_path from current as $$
  select split_part(nullif(current_setting('coordination.event', true), ''), ' ', 1)::bigint
$$;
