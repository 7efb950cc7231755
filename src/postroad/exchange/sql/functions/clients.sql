-- Makes a client known.  Errors: MX010 exists already (also in another case).
create or replace function exchange.add_client(
  p_id text, p_secret_hash text, p_is_admin boolean, p_databases text[], p_recipients text[])
returns exchange.client
language plpgsql volatile set search_path from current as $$
declare
  v_client exchange.client;
begin
  insert into exchange.client (id, secret_hash, is_admin, databases, recipients)
  values (p_id, p_secret_hash, p_is_admin, p_databases, coalesce(p_recipients, '{}'))
  on conflict do nothing returning * into v_client;
  if v_client.id is null then
    raise exception 'there is a client % already', quote_literal(p_id)
      using errcode = 'MX010', hint = 'Names that differ only by case are the same. A new secret: postroad exchange clients renew.';
  end if;
  return v_client;
end $$;

-- Gives a client a new secret; a server refuses the old one within two seconds.  Errors: MX011.
create or replace function exchange.renew_client(p_id text, p_secret_hash text) returns exchange.client
language plpgsql volatile set search_path from current as $$
declare
  v_client exchange.client;
begin
  update exchange.client c set secret_hash = p_secret_hash where c.id = p_id returning c.* into v_client;
  if v_client.id is null then
    raise exception 'there is no client %', quote_literal(p_id)
      using errcode = 'MX011', hint = 'Look at: postroad exchange clients list';
  end if;
  return v_client;
end $$;

-- Forgets a client; its messages stay.  Errors: MX011.
create or replace function exchange.remove_client(p_id text) returns void
language plpgsql volatile set search_path from current as $$
begin
  delete from exchange.client c where c.id = p_id;
  if not found then
    raise exception 'there is no client %', quote_literal(p_id)
      using errcode = 'MX011', hint = 'Look at: postroad exchange clients list';
  end if;
end $$;

-- The client whose secret this is; no row if nobody's.
create or replace function exchange.client_by_secret(p_secret_hash text) returns setof exchange.client
language sql stable set search_path from current as $$
  select c.* from exchange.client c where c.secret_hash = p_secret_hash
$$;
