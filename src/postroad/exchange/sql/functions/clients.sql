-- Adds a client.  p_databases null: all.  Errors: MX010 a client of this name exists, perhaps in another case.
create or replace function exchange.add_client(
  p_id text, p_secret_hash text, p_is_admin boolean, p_databases text[], p_recipients text[],
  p_may_send boolean default true, p_may_take boolean default true)
returns exchange.client
language plpgsql volatile set search_path from current as $$
declare
  v_client exchange.client;
begin
  insert into exchange.client (id, secret_hash, is_admin, databases, recipients, may_send, may_take)
  values (p_id, p_secret_hash, p_is_admin, p_databases, coalesce(p_recipients, '{}'), p_may_send, p_may_take)
  on conflict do nothing returning * into v_client;
  if v_client.id is null then
    raise exception 'there is a client % already', quote_literal(p_id)
      using errcode = 'MX010', hint = 'Names that differ only by case are the same. A new secret: postroad exchange clients renew.';
  end if;
  return v_client;
end $$;

create or replace function exchange._refuse_unknown_client(p_id text) returns void
language plpgsql volatile set search_path from current as $$
begin
  raise exception 'there is no client %', quote_literal(p_id)
    using errcode = 'MX011', hint = 'List them: postroad exchange clients list';
end $$;

-- Changes the rights of a client; null leaves a right unchanged.  A server applies it within two seconds.  Errors: MX011.
create or replace function exchange.change_client(
  p_id text, p_is_admin boolean, p_databases text[], p_has_all_databases boolean, p_recipients text[],
  p_may_send boolean, p_may_take boolean)
returns exchange.client
language sql volatile set search_path from current as $$
  select exchange._refuse_unknown_client(p_id) where not exists (select from exchange.client c where c.id = p_id);
  update exchange.client c
  set is_admin = coalesce(p_is_admin, c.is_admin), recipients = coalesce(p_recipients, c.recipients),
      databases = case when p_has_all_databases then null else coalesce(p_databases, c.databases) end,
      may_send = coalesce(p_may_send, c.may_send), may_take = coalesce(p_may_take, c.may_take)
  where c.id = p_id returning c.*
$$;

-- Gives a client a new secret; a server refuses the old one within two seconds.  Errors: MX011.
create or replace function exchange.renew_client(p_id text, p_secret_hash text) returns exchange.client
language sql volatile set search_path from current as $$
  select exchange._refuse_unknown_client(p_id) where not exists (select from exchange.client c where c.id = p_id);
  update exchange.client c set secret_hash = p_secret_hash where c.id = p_id returning c.*
$$;

-- Removes a client; its messages stay.  Errors: MX011.
create or replace function exchange.remove_client(p_id text) returns void
language sql volatile set search_path from current as $$
  select exchange._refuse_unknown_client(p_id) where not exists (select from exchange.client c where c.id = p_id);
  delete from exchange.client c where c.id = p_id
$$;

-- The client with this secret; no row if there is none.
create or replace function exchange.client_by_secret(p_secret_hash text) returns setof exchange.client
language sql stable set search_path from current as $$
  select c.* from exchange.client c where c.secret_hash = p_secret_hash
$$;
