-- Clients: ERP instances, mobile clients, administrators.  The secret is stored hashed.
--   databases  to which it may send and from which it may take; null: all
create table exchange.client (
  id          text primary key,
  secret_hash text not null constraint secret_is_one_clients unique,
  is_admin    boolean not null default false,
  databases   text[],
  recipients  text[] not null default '{}',
  created_at  timestamptz not null default clock_timestamp(),
  may_send    boolean not null default true,
  may_take    boolean not null default true,
  constraint client_id_is_safe check (id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$')
);
create unique index client_differs_not_by_case_alone_idx on exchange.client (lower(id));
