"""Who owns what a superuser installs: a role without superuser, whose rights the functions have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection, sql

from postroad.cli.components import BUS, COORDINATION, SCHEMAS
from postroad.postgres import install, script, upgrade
from postroad.testing import TestServer
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue
from tests.migration.test_rights import plain_user
from tests.migration.test_script import run_psql
from tests.sql.calls import column, one, refused, rows, take
from tests.sql.test_security import Login, login, owned

pytestmark = pytest.mark.both_versions

__all__ = ["login", "owned", "plain_user"]

# A superuser's function in which the bus trusts because of its owner; it has its caller's rights.
NEEDS_SUPERUSER = {
    "read": "perform pg_read_file('PG_VERSION')",
    "program": "copy (select 1) to program 'cat >/dev/null'",
    "setting": "perform set_config('log_min_messages', 'panic', true)",
    "role": "create role never superuser",
    "catalogue": "update pg_proc set proname = proname",
}
PROBE = """
create sequence public.ran;
grant all on sequence public.ran to public;
create function public.act() returns void language plpgsql
  as $$begin {}; perform nextval('public.ran'); end$$;
create function public.probe(text) returns boolean language plpgsql immutable
  as $$begin perform public.act(); return true; end$$;
"""
OF_SUPERUSERS = """
select format('%s %s', k, n) from (
  select 'schema', nspname, nspowner from pg_namespace where nspname = any (%(schemas)s)
  union all select 'relation', relname, relowner from pg_class
    where relnamespace::regnamespace::text = any (%(schemas)s) or relname ~ '_q$'
  union all select 'type', typname, typowner from pg_type
    where typnamespace::regnamespace::text = any (%(schemas)s)
  union all select 'function', proname, proowner from pg_proc
    where pronamespace::regnamespace::text = any (%(schemas)s)) o(k, n, owner)
join pg_roles r on r.oid = o.owner where r.rolsuper order by 1
"""
EVERYWHERE = [each.name for each in SCHEMAS if each is not COORDINATION]


def of_superusers(connection: Connection, *schemas: str) -> list[str]:
    query = OF_SUPERUSERS.replace("'%s %s'", "'%%s %%s'").encode()
    return [row[0] for row in connection.execute(query, {"schemas": list(schemas)})]


def owner(connection: Connection, schema: str = "mbus") -> str:
    return one(
        connection, "select nspowner::regrole::text from pg_namespace where nspname = %s", schema
    )


@pytest.fixture
def old_bus(empty_database: str, plain_user: str) -> Iterator[str]:
    """A bus as a superuser installed it before: all of it, and its roles, are a superuser's."""
    user = sql.Identifier(plain_user)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("grant all on database {} to {}").format(database, user))
        connection.execute(sql.SQL("grant all on schema public to {}").format(user))
        connection.execute(sql.SQL("alter role {} createrole").format(user))
        connection.execute("create schema reports")
        connection.execute(sql.SQL("grant all on schema reports to {}").format(user))
        connection.execute(sql.SQL("set session authorization {}").format(user))
        install(connection, BUS)
        connection.execute("select mbus.create_queue('q', is_roles_security_model => true)")
        connection.execute("select mbus.create_queue('other')")
        connection.execute("select mbus.create_view('q')")
        connection.execute("select mbus.create_view('q', sname => 'reports')")
        connection.execute("select mbus.post_q('n=>1')")
        connection.execute("reset session authorization")
        connection.execute(sql.SQL("alter role {} superuser").format(user))
        yield empty_database
        connection.execute(
            sql.SQL("reassign owned by {} to {}").format(user, sql.Identifier(connection.info.user))
        )
        connection.execute(sql.SQL("drop owned by {}").format(user))
        for role in column(
            connection,
            "select rolname::text from pg_roles where starts_with(rolname, %s)"
            " and rolname <> %s order by 1",
            f"mbus_{connection.info.dbname}_",
            f"mbus_{connection.info.dbname}_owner",
        ):
            drop = "drop owned by {0}; drop role {0}"
            connection.execute(sql.SQL(drop).format(sql.Identifier(role)))


def test_no_schema_belongs_to_the_superuser_who_installs_it(
    empty_database: str, connect: Connect
) -> None:
    connection = connect(empty_database)
    for schema in SCHEMAS:
        install(connection, schema)
    assert of_superusers(connection, *EVERYWHERE) == []
    assert {owner(connection, name) for name in EVERYWHERE} == {
        f"mbus_{connection.info.dbname}_owner"
    }
    found = rows(
        connection,
        "select rolsuper, rolcanlogin, rolbypassrls, rolreplication, rolcreatedb from pg_roles"
        " where rolname = %s",
        owner(connection),
    )
    assert found == [(False,) * 5]
    open_to_all = rows(
        connection,
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace::regnamespace::text"
        " = any (%s) and has_function_privilege('public', p.oid, 'execute')",
        [schema.name for schema in SCHEMAS],
    )
    assert open_to_all == []
    connection.rollback()
    assert all(install(connection, schema).is_unchanged for schema in SCHEMAS)


def test_the_script_of_all_schemas_gives_them_to_that_role_too(
    server: TestServer, empty_database: str, connect: Connect, tmp_path: Path
) -> None:
    text = "".join(script(schema) for schema in SCHEMAS)
    done = run_psql(server, empty_database, text, tmp_path, "-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert of_superusers(connect(empty_database), *EVERYWHERE) == []


def test_an_upgrade_by_a_superuser_takes_the_bus_from_a_superuser(
    old_bus: str, server: TestServer, connect: Connect
) -> None:
    connection = connect(old_bus)
    assert "schema mbus" in of_superusers(connection, "mbus")
    connection.rollback()
    assert install(connection, BUS, is_dry_run=True).is_owner_changed
    assert upgrade(connection, BUS).is_owner_changed
    assert upgrade(connection, BUS).is_unchanged
    assert of_superusers(connection, "mbus") == []
    # Everything works as before, and what was created before can be changed and dropped.
    connection.execute("select mbus.create_consumer('q', 'second')")
    connection.execute("select mbus.post_q('n=>2')")
    assert take(connection) == ["1", "2"]
    connection.execute("select mbus.create_view('q', sname => 'reports')")
    connection.execute("insert into public.q_q (data) values ('n=>3')")
    connection.execute("select mbus.alter_queue('other', is_roles_security_model => true)")
    connection.execute("select mbus.drop_queue('q')")
    connection.execute("select mbus.drop_queue('other')")
    connection.commit()
    database = connection.info.dbname
    left = column(
        connection,
        "select rolname::text from pg_roles where starts_with(rolname, %s) order by 1",
        f"mbus_{database}_",
    )
    assert left == [f"mbus_{database}_{role}" for role in ("admin", "caller", "owner", "user")]
    with server.clone() as dsn:
        fresh = connect(dsn)
        install(fresh, BUS)
        assert catalogue(connection, "mbus") == catalogue(fresh, "mbus")
        fresh.close()


def test_an_upgrade_by_a_superuser_leaves_an_owner_without_superuser(
    old_bus: str, plain_user: str, connect: Connect
) -> None:
    connection = connect(old_bus)
    connection.execute(sql.SQL("alter role {} nosuperuser").format(sql.Identifier(plain_user)))
    connection.execute("delete from mbus.replaceable where path = 'internal/roles.sql'")
    connection.execute("drop function mbus._post_role")
    connection.commit()
    upgrade(connection, BUS)
    assert owner(connection) == plain_user
    assert of_superusers(connection, "mbus") == []


@pytest.mark.parametrize("what", NEEDS_SUPERUSER)
def test_an_admin_of_the_bus_does_nothing_that_needs_superuser(
    owned: str, login: Login, connect: Connect, what: str
) -> None:
    with connect(owned) as superuser:
        superuser.execute(PROBE.format(NEEDS_SUPERUSER[what]).encode())
        superuser.execute("select mbus.create_queue('copies')")
        superuser.execute("select mbus.create_queue('work')")
        superuser.execute("select mbus.create_run_function('work')")
    admin = login("admin")
    selector = "public.probe(t.iid)"
    admin.execute("select mbus.post('work', 'a=>1'::hstore)")
    for call in (
        f"select * from mbus.dyn_consume('work', '{selector}')",
        "select mbus.run_on_work('select public.probe(($1).iid)')",
        f"select mbus.create_temporary_consumer('work', '{selector}')",
        "select mbus.post('work', 'a=>1'::hstore)",
        f"select mbus.create_consumer('open', 'c', '{selector}')",
        "select mbus.post('open', 'a=>1'::hstore)",
        f"select mbus.create_trigger('work', 'copies', '{selector}')",
        "select mbus.post('work', 'a=>1'::hstore)",
    ):
        if "create_" in call:
            admin.execute(call.encode())
        else:
            with contextlib.suppress(psycopg.Error):
                admin.execute(call.encode())
    with connect(owned) as superuser:
        assert not one(superuser, "select is_called from public.ran")
        superuser.execute("select public.probe('')")


@pytest.mark.parametrize("what", NEEDS_SUPERUSER)
def test_the_owner_of_the_bus_does_nothing_that_needs_superuser(
    owned: str, connect: Connect, what: str
) -> None:
    connection = connect(owned, autocommit=True)
    connection.execute(PROBE.format(NEEDS_SUPERUSER[what]).encode())
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(owner(connection))))
    with refused(connection, "42501"):
        connection.execute("select public.probe('')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("alter system set log_min_messages = 'panic'")


def test_a_view_where_the_owner_may_not_create_names_the_right(
    owned: str, connect: Connect
) -> None:
    connection = connect(owned)
    connection.execute("create schema reports")
    with pytest.raises(psycopg.Error) as error, connection.transaction():
        connection.execute("select mbus.create_view('open', sname => 'reports')")
    assert error.value.sqlstate == "MB013"
    hint = error.value.diag.message_hint
    assert hint is not None
    connection.execute(hint.encode())
    connection.execute("select mbus.create_view('open', sname => 'reports')")
