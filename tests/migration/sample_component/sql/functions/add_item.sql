-- Keeps what an execution with parameters would spoil: 100 % of it, and $$ quotes.
create or replace function sample.add_item(p_labels hstore default '') returns bigint
language plpgsql security definer set search_path from current as $$
declare
    v_id bigint;
begin
    insert into item (labels) values (p_labels || hstore('share', format('%s%%', 100)))
    returning id into v_id;
    return v_id;
end
$$;
