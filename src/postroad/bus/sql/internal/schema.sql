-- JSON Schema of queues: the keywords of mbus._check_schema, as draft 2020-12 defines them.  Patterns are regular expressions of
-- PostgreSQL.

-- Raises MB011 if data violates the schema of a queue.
create or replace function mbus._conform(p_queue_id integer, p_data jsonb) returns void
language plpgsql stable set search_path from current as $$
declare
  v_queue constant mbus.queue := (select q from mbus.queue q where q.id = p_queue_id);
  v_found text;
begin
  begin
    v_found := mbus._violation(v_queue.schema, coalesce(v_queue.schema, 'true'), coalesce(p_data, 'null'), '$');
  exception when statement_too_complex then v_found := 'it is nested too deeply';
  end;
  if v_found is not null then
    raise exception 'the data violates the schema of queue "%": %', v_queue.name, v_found
      using errcode = 'MB011', hint = 'The column schema of mbus.queues shows the schema.';
  end if;
end $$;

create or replace function mbus._as_json(p_parcel mbus.parcel) returns jsonb
language sql immutable set search_path from current as $$
  select coalesce(hstore_to_jsonb(p_parcel.data_hstore), p_parcel.data_jsonb, to_jsonb(p_parcel.data_text))
$$;

-- The path of the first value that violates a schema, with the keyword and its rule; null if there is none.  Volatile, so that the
-- planner does not apply the function to keywords that a schema does not have.
create or replace function mbus._violation(p_root jsonb, p_schema jsonb, p_value jsonb, p_path text) returns text
language plpgsql set search_path from current as $$
declare
  v_type    constant text := jsonb_typeof(p_value);
  v_number  constant numeric := case v_type when 'number' then p_value::numeric end;
  v_text    constant text := case v_type when 'string' then p_value #>> '{}' end;
  v_items   constant jsonb := case v_type when 'array' then p_value end;
  v_fields  constant jsonb := case v_type when 'object' then p_value end;
  v_keyword text;
  v_rule    jsonb;
  v_found   text;
begin
  if p_schema is null then raise exception 'there is no schema'; end if;
  if jsonb_typeof(p_schema) = 'boolean' then return case when not p_schema::boolean then p_path || ': false' end; end if;
  for v_keyword, v_rule in select * from jsonb_each(p_schema) loop
    if not coalesce(case v_keyword
         when 'type' then v_rule ? v_type or v_rule ? 'integer' and coalesce(v_number = trunc(v_number), false)
         when 'const' then p_value = v_rule
         when 'minimum' then v_number >= v_rule::numeric
         when 'maximum' then v_number <= v_rule::numeric
         when 'exclusiveMinimum' then v_number > v_rule::numeric
         when 'exclusiveMaximum' then v_number < v_rule::numeric
         when 'multipleOf' then v_number % v_rule::numeric = 0
         when 'minLength' then length(v_text) >= v_rule::integer
         when 'maxLength' then length(v_text) <= v_rule::integer
         when 'pattern' then v_text ~ (v_rule #>> '{}')
         when 'minItems' then jsonb_array_length(v_items) >= v_rule::integer
         when 'maxItems' then jsonb_array_length(v_items) <= v_rule::integer
         when 'not' then mbus._violation(p_root, v_rule, p_value, p_path) is not null
         else true end, true) then
      return format('%s: %s %s', p_path, v_keyword, v_rule);
    end if;
    case v_keyword
      when 'enum' then
        select format('%s: enum %s', p_path, v_rule) into v_found
        where not exists (select from jsonb_array_elements(v_rule) e where e.value = p_value);
      when 'anyOf', 'oneOf' then
        select format('%s: %s, %s of them match', p_path, v_keyword, count(*)) into v_found
        from jsonb_array_elements(v_rule) s where mbus._violation(p_root, s.value, p_value, p_path) is null
        having count(*) = 0 or count(*) > 1 and v_keyword = 'oneOf';
      when 'required' then
        select format('%s.%s: required', p_path, n.name) into v_found
        from jsonb_array_elements_text(v_rule) n(name) where not v_fields ? n.name limit 1;
      when 'uniqueItems' then
        select format('%s: uniqueItems', p_path) into v_found
        from jsonb_array_elements(v_items) i where v_rule::boolean having count(*) > count(distinct i.value);
      when 'minProperties', 'maxProperties' then
        select format('%s: %s %s', p_path, v_keyword, v_rule) into v_found
        from jsonb_object_keys(v_fields) having v_fields is not null and case v_keyword
          when 'minProperties' then count(*) < v_rule::integer else count(*) > v_rule::integer end;
      when 'allOf', '$ref', 'items', 'properties', 'additionalProperties' then
        select v.found into v_found from (
          select s.value, p_value, p_path from jsonb_array_elements(case v_keyword when 'allOf' then v_rule end) s
          union all select case when v_rule #>> '{}' like '#%' then p_root #> string_to_array(substr(v_rule #>> '{}', 3), '/') end, p_value, p_path
          where v_keyword = '$ref'
          union all select v_rule, i.value, format('%s[%s]', p_path, i.place - 1)
          from jsonb_array_elements(case v_keyword when 'items' then v_items end) with ordinality i(value, place)
          union all select case v_keyword when 'properties' then v_rule -> f.key else v_rule end, f.value, concat_ws('.', p_path, f.key)
          from jsonb_each(case when v_keyword like '%roperties' then v_fields end) f
          where coalesce(p_schema -> 'properties' ? f.key, false) = (v_keyword = 'properties')) n(rule, value, path)
        cross join lateral (select mbus._violation(p_root, n.rule, n.value, n.path)) v(found) where v.found is not null limit 1;
      else null;
    end case;
    if v_found is not null then return v_found; end if;
  end loop;
  return null;
end $$;

-- Raises an error for a schema that is not valid or has a keyword that is not supported.  Rules of the wrong type and endless references
-- are found by applying each schema to a value of each type.
create or replace function mbus._check_schema(p_root jsonb, p_schema jsonb, p_path text) returns void
language plpgsql set search_path from current as $$
declare
  v_wrong text;
begin
  perform mbus._violation(p_root, p_schema, v, p_path) from unnest(array['null', 'true', '0', '""', '[0]', '[]', '{}']::jsonb[]) v;
  if jsonb_typeof(p_schema) = 'boolean' then return; end if;
  select coalesce(min(k.name), (
    select min(t.name) from jsonb_path_query(p_schema, '$.type') e cross join lateral jsonb_array_elements_text(jsonb_build_array() || e) t(name)
    where t.name <> all ('{"null",boolean,number,integer,string,array,object}')))
  into v_wrong from jsonb_object_keys(p_schema) k(name)
  where k.name <> all ('{$ref,$defs,type,enum,const,allOf,anyOf,oneOf,not,properties,required,additionalProperties,minProperties,maxProperties,
    items,minItems,maxItems,uniqueItems,minLength,maxLength,pattern,minimum,maximum,exclusiveMinimum,exclusiveMaximum,multipleOf,
    title,description,default,examples,deprecated,readOnly,writeOnly,format,$comment,$schema}') and (k.name <> '$id' or p_path <> '$');
  if v_wrong is not null then raise exception '"%" is not supported', v_wrong; end if;
  perform mbus._check_schema(p_root, c.value, concat_ws('.', p_path, e.key))
  from jsonb_each(p_schema) e
  cross join lateral jsonb_path_query(e.value, case when e.key in ('properties', '$defs') then 'strict $.*'::jsonpath
                                               when e.key like '%Of' then 'strict $[*]' else '$' end) c(value)
  where e.key in ('properties', '$defs', 'allOf', 'anyOf', 'oneOf', 'not', 'items', 'additionalProperties');
exception when others then
  if sqlstate = 'MB012' then raise; end if;
  raise exception 'invalid schema at %: %', p_path, sqlerrm
    using errcode = 'MB012', hint = 'Use the keywords that the guide to schemas lists, with values of the right type; bytes have no schema.';
end $$;
