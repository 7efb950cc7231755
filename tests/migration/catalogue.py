"""What a schema consists of, by fact: comparable between a fresh and a migrated install."""

from __future__ import annotations

from psycopg import Connection

_FACTS = """
select 'column', format('%%s.%%s', c.relname, a.attname),
       format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || ' '
       || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || a.attidentity::text
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = to_regnamespace(%(schema)s) and c.relkind in ('r', 'v', 'c', 'p')
union all
select 'relation', c.relname, c.relkind::text || ' ' || coalesce(c.relacl::text, '')
       || coalesce(array_to_string(c.reloptions, ','), '')
from pg_class c where c.relnamespace = to_regnamespace(%(schema)s)
union all
select 'index', c.relname, pg_get_indexdef(c.oid)
from pg_class c where c.relnamespace = to_regnamespace(%(schema)s) and c.relkind = 'i'
union all
select 'constraint', conname, pg_get_constraintdef(oid)
from pg_constraint where connamespace = to_regnamespace(%(schema)s)
union all
select 'function', p.oid::regprocedure::text,
       pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
from pg_proc p where p.pronamespace = to_regnamespace(%(schema)s) and p.prokind = 'f'
union all
select 'view', c.relname, pg_get_viewdef(c.oid)
from pg_class c where c.relnamespace = to_regnamespace(%(schema)s) and c.relkind = 'v'
union all
select 'trigger', tgname, pg_get_triggerdef(t.oid)
from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = to_regnamespace(%(schema)s) and not tgisinternal
order by 1, 2, 3
"""


def catalogue(connection: Connection, schema: str) -> list[tuple[str, str, str]]:
    facts = connection.execute(_FACTS, {"schema": schema}).fetchall()
    connection.rollback()
    # Roles carry the name of their database; everything else must be the same in two of them.
    own = f"mbus_{connection.info.dbname}_"
    return [(kind, name, text.replace(own, "mbus_<database>_")) for kind, name, text in facts]
