-- Severities in their order: info 1, warning 2, error 3, critical 4.  Errors: MA001.
create or replace function alerts._rank(p_severity text) returns integer
language plpgsql immutable set search_path from current as $$
declare
  v_rank constant integer := array_position(array['info', 'warning', 'error', 'critical'], p_severity);
begin
  if v_rank is null then
    raise exception 'there is no severity %', coalesce(quote_literal(p_severity), 'null')
      using errcode = 'MA001', hint = 'Choose info, warning, error or critical.';
  end if;
  return v_rank;
end $$;
