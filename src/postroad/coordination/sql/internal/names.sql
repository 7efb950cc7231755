-- Fills a template: each {name} is replaced by the value of that name; others stay.
create or replace function coordination._fill(p_template text, p_values jsonb) returns text
language sql stable set search_path from current as $$
  select coordination._fill_text(t.body, p_values) from coordination.template t where t.name = p_template
$$;

create or replace function coordination._fill_text(p_text text, p_values jsonb) returns text
language plpgsql immutable set search_path from current as $$
declare
  v_value record;
begin
  for v_value in select * from jsonb_each_text(p_values) loop
    p_text := replace(p_text, '{' || v_value.key || '}', v_value.value);
  end loop;
  return p_text;
end $$;

-- The number of a type, such as DummyItem.Insert; a new type is inserted.
create or replace function coordination._type(p_name text) returns integer
language plpgsql set search_path from current as $$
declare
  v_id integer;
begin
  select t."Id" into v_id from coordination."AppEventType" t where t."Name" = p_name;
  if v_id is null then
    insert into coordination."AppEventType" ("Name", "Entity", "Operation")
    values (p_name, left(p_name, length(p_name) - strpos(reverse(p_name), '.')), substring(p_name from '[^.]+$'))
    on conflict ("Name") do update set "Entity" = excluded."Entity" returning "Id" into v_id;
  end if;
  return v_id;
end $$;

-- The trace of several events if it is the same for all of them, otherwise null.
create or replace function coordination._only_trace(p_lines text[]) returns text
language sql immutable set search_path from current as $$
  select case when count(distinct split_part(u.line, '-', 2)) = 1 and count(*) = count(u.line) then min(u.line) end
  from unnest(p_lines) u (line)
$$;
