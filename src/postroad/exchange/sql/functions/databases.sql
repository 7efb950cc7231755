-- Adds a database, or changes an existing one (null: unchanged).
-- Errors: MX020 the name of another database differs only by case.
create or replace function exchange.add_database(p_id text, p_resolution text default null, p_policy text default null)
returns exchange.database
language plpgsql volatile set search_path from current as $$
declare
  v_database exchange.database;
begin
  -- Violates either index if the name exists, perhaps in another case, or if another transaction has just added it.
  insert into exchange.database (id) values (p_id) on conflict do nothing;
  update exchange.database d
  set resolution = coalesce(p_resolution, d.resolution), policy = coalesce(p_policy, d.policy)
  where d.id = p_id returning * into v_database;
  if found then return v_database; end if;
  raise exception 'there is a database whose name differs from % only by case', quote_literal(p_id)
    using errcode = 'MX020', hint = 'Use its exact name, or a name that differs by more.';
end $$;

-- The database of that exact name, created if it is missing and p_may_create.
-- Errors: MX020 differs only by case, MX021 unknown.
create or replace function exchange.find_database(p_id text, p_may_create boolean) returns exchange.database
language plpgsql volatile set search_path from current as $$
declare
  v_database exchange.database;
begin
  select d.* into v_database from exchange.database d where d.id = p_id;
  if v_database.id is not null then return v_database; end if;
  if p_may_create then return exchange.add_database(p_id); end if;
  raise exception 'there is no database %', quote_literal(p_id)
    using errcode = 'MX021', hint = format('Add it: postroad exchange databases add %s', p_id);
end $$;
