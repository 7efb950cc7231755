from __future__ import annotations

import psycopg
import pytest

from postroad.postgres import install, status, upgrade
from postroad.postgres.errors import ConnectionNotIdle, SchemaForeign, SchemaMissing
from tests.fixtures.postgres import Connect, InThread
from tests.migration.conftest import Component

pytestmark = pytest.mark.both_versions


def test_a_fresh_install_has_everything(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    done = install(connection, component.schema)
    assert done.is_fresh
    assert "functions/add_item.sql" in done.replaced
    assert connection.execute("select sample.add_item('a=>1')").fetchone() == (1,)
    labels = connection.execute("select labels->'share' from sample.item").fetchone()
    assert labels == ("100%",)
    assert connection.execute("select name, body from sample.template").fetchall() == [
        ("greeting", component.read("templates/greeting.sql"))
    ]
    assert connection.execute("select count(*) from sample.run").fetchone() == (1,)
    assert status(connection, component.schema).is_current


def test_a_second_install_changes_nothing(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    assert install(connection, component.schema).is_unchanged
    assert connection.execute("select count(*) from sample.run").fetchone() == (1,)


def test_functions_find_their_schema_and_hstore_but_nothing_of_others(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    connection.execute("create schema elsewhere")
    connection.execute("create extension hstore schema elsewhere")
    connection.commit()
    install(connection, component.schema)
    found = connection.execute(
        "select proconfig from pg_proc where proname = 'add_item'"
    ).fetchone()
    assert found == (["search_path=pg_catalog, sample, elsewhere, pg_temp"],)


def test_what_fails_half_way_leaves_nothing(
    empty_database: str, connect: Connect, component: Component
) -> None:
    component.write("after.sql", "select 1 / 0;")
    connection = connect(empty_database)
    with pytest.raises(psycopg.errors.DivisionByZero):
        install(connection, component.schema)
    assert connection.execute("select to_regnamespace('sample')").fetchone() == (None,)


def test_installs_at_once_do_it_once(
    empty_database: str, connect: Connect, component: Component, in_thread: InThread
) -> None:
    running = [in_thread(install, connect(empty_database), component.schema) for _ in range(4)]
    outcomes = [one.result(timeout=30) for one in running]
    assert sorted(one.is_fresh for one in outcomes) == [False, False, False, True]
    assert sum(one.is_unchanged for one in outcomes) == 3


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    planned = install(connection, component.schema, is_dry_run=True)
    assert planned.is_fresh
    assert not status(connection, component.schema).is_installed
    connection.rollback()
    assert install(connection, component.schema) == planned


def test_an_upgrade_needs_an_install(
    empty_database: str, connect: Connect, component: Component
) -> None:
    with pytest.raises(SchemaMissing, match="not installed"):
        upgrade(connect(empty_database), component.schema)


def test_a_schema_of_somebody_else_is_refused(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    connection.execute("create schema sample")
    connection.execute("create table sample.precious (id int)")
    connection.commit()
    with pytest.raises(SchemaForeign):
        install(connection, component.schema)


def test_an_empty_schema_is_taken(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    connection.execute("create schema sample")
    connection.commit()
    assert install(connection, component.schema).is_fresh


def test_a_connection_inside_a_transaction_is_refused(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    connection.execute("select 1")
    with pytest.raises(ConnectionNotIdle):
        install(connection, component.schema)


def test_autocommit_connections_install_in_one_transaction_too(
    empty_database: str, connect: Connect, component: Component
) -> None:
    component.write("after.sql", "select 1 / 0;")
    connection = connect(empty_database, autocommit=True)
    with pytest.raises(psycopg.errors.DivisionByZero):
        install(connection, component.schema)
    assert connection.execute("select to_regnamespace('sample')").fetchone() == (None,)
