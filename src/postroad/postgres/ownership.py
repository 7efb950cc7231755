"""The owner of a schema that a superuser installs: a role without superuser.

Functions of a schema that are `security definer` run with the rights of their owner. So when a
superuser installs or upgrades, all objects of the schema are given to another role, and the rest of
the transaction runs as that role. It is, in this order: the owner of the schema; the owner of
schema `mbus`; `mbus_<database>_owner`, which is created without login. Owners that are superusers
do not count. While schema `mbus` belongs to a superuser, other schemas stay as they are, because
they call it. An installer without superuser changes no owner.

A schema with `acts_on_tables_of_users` keeps its owner: another could not write to those tables.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import Connection, sql

from postroad.postgres.bookkeeping import LOCK_KEY
from postroad.postgres.manifest import Schema

# The name of the owner, or null where nothing is to be changed.  A name has 63 bytes at most.
_OWNER: LiteralString = """
select coalesce(own.rolname, bus.rolname,
  case when {schema} = 'mbus' or to_regnamespace('mbus') is null then
    'mbus_' || case when octet_length(current_database()) <= 52 then current_database()
                    else md5(current_database()) end || '_owner' end)
from pg_roles installer
left join (pg_namespace n join pg_roles own on own.oid = n.nspowner and not own.rolsuper)
  on n.nspname = {schema}
left join (pg_namespace m join pg_roles bus on bus.oid = m.nspowner and not bus.rolsuper)
  on m.nspname = 'mbus'
where installer.rolname = current_user and installer.rolsuper
"""

# Everything in the schema, and views of queues in other schemas.  Sequences of columns and types of
# tables follow their table; objects of extensions stay.
_OBJECTS: LiteralString = """
select case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type'
       else 'table' end as kind, c.oid::regclass::text as name, c.relowner as owner
from pg_class c
where (c.relnamespace = {schema}::regnamespace and c.relkind in ('r', 'p', 'S', 'v', 'c')
       or c.oid in (select t.tgrelid from pg_trigger t join pg_proc p on p.oid = t.tgfoid
                    where p.pronamespace = {schema}::regnamespace) and c.relkind = 'v')
  and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
                  and (d.deptype = 'e' or c.relkind = 'S' and d.deptype in ('a', 'i')))
union all
select 'routine', p.oid::regprocedure::text, p.proowner
from pg_proc p
where p.pronamespace = {schema}::regnamespace
  and not exists (select from pg_depend d
                  where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
union all
select 'type', t.oid::regtype::text, t.typowner
from pg_type t
where t.typnamespace = {schema}::regnamespace and t.typtype in ('d', 'e', 'r')
union all
select 'schema', quote_ident(n.nspname), n.nspowner from pg_namespace n where n.nspname = {schema}
"""

_OWN_SCHEMA: LiteralString = f"""
do $own$
declare
  v_owner constant text := ({_OWNER});
  v_object record;
  v_right text;
begin
  if v_owner is null then return; end if;
  perform pg_advisory_xact_lock({{key}}, hashtext('owner'));
  if to_regrole(quote_ident(v_owner)) is null then
    execute format('create role %I nologin noinherit createrole', v_owner);
  end if;
  if (select n.nspowner from pg_namespace n where n.nspname = {{schema}})
     <> to_regrole(quote_ident(v_owner)) then
    for v_right in
      -- Views of queues are created in public unless another schema is named.
      select 'usage, create on schema ' || quote_ident(n.nspname) from pg_namespace n
      where (n.nspname = 'public' or n.oid in (
               select c.relnamespace from pg_class c
               join pg_trigger t on t.tgrelid = c.oid join pg_proc p on p.oid = t.tgfoid
               where c.relkind = 'v' and p.pronamespace = {{schema}}::regnamespace))
        and not has_schema_privilege(v_owner, n.oid, 'create')
      union all
      select 'usage on schema ' || quote_ident(n.nspname)
      from pg_extension e join pg_namespace n on n.oid = e.extnamespace
      where e.extname = any ({{extensions}}::text[])
        and not has_schema_privilege(v_owner, n.oid, 'usage')
    loop
      execute format('grant %s to %I', v_right, v_owner);
    end loop;
    -- Since PostgreSQL 16 only a role with the admin option may grant or drop the roles of queues.
    for v_right in
      select distinct r.rolname
      from pg_proc p cross join aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
      where p.pronamespace = {{schema}}::regnamespace and r.rolname <> v_owner
        and starts_with(r.rolname, 'mbus_' || current_database() || '_')
        and not pg_has_role(v_owner, r.oid, 'member with admin option')
    loop
      execute format('grant %I to %I with admin option', v_right, v_owner);
    end loop;
  end if;
  for v_object in
    select o.kind, o.name from ({_OBJECTS}) o where o.owner <> to_regrole(quote_ident(v_owner))
  loop
    execute format('alter %s %s owner to %I', v_object.kind, v_object.name, v_owner);
  end loop;
  perform set_config('role', v_owner, true);
end
$own$;
"""  # noqa: S608 - constants of this module

_IS_OWNER_WRONG: LiteralString = f"""
select exists (
  select from ({_OBJECTS}) o cross join ({_OWNER}) w(name)
  where w.name is not null and o.owner is distinct from to_regrole(quote_ident(w.name)))
"""  # noqa: S608 - constants of this module


def is_owner_wrong(connection: Connection, schema: Schema) -> bool:
    """Whether `own_schema` would change the owner of anything. Read-only."""
    if schema.acts_on_tables_of_users:
        return False
    query = sql.SQL(_IS_OWNER_WRONG).format(schema=sql.Literal(schema.name))
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def own_schema(schema: Schema) -> str:
    """Return the statement that sets the owner and continues the transaction as that role."""
    if schema.acts_on_tables_of_users:
        return ""
    return (
        sql.SQL(_OWN_SCHEMA)
        .format(
            schema=sql.Literal(schema.name),
            extensions=sql.Literal(list(schema.extensions)),
            key=sql.Literal(LOCK_KEY),
        )
        .as_string(None)
    )
