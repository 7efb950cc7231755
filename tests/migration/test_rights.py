from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from postroad.bus.schema import BUS
from postroad.postgres import install
from postroad.postgres.errors import ExtensionMissing, RightMissing
from postroad.testing import TestServer
from tests.fixtures.postgres import Connect
from tests.migration.conftest import Component

pytestmark = pytest.mark.both_versions


@pytest.fixture
def plain_user(server: TestServer) -> Iterator[str]:
    """A role that may log in by its password and do nothing special."""
    name = server.create()
    server.drop(name)
    role = sql.Identifier(f"plain_{name}")
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password 'secret'").format(role))
        yield f"plain_{name}"
        connection.execute(sql.SQL("drop role {}").format(role))


def _as(dsn: str, user: str) -> str:
    return make_conninfo(dsn, user=user, password="secret")


@pytest.mark.parametrize("schema", ["component", "bus"])
def test_the_owner_of_a_database_installs_without_being_superuser(
    server: TestServer, plain_user: str, component: Component, schema: str
) -> None:
    with server.clone() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(
                sql.SQL("alter database {} owner to {}").format(
                    sql.Identifier(connection.info.dbname), sql.Identifier(plain_user)
                )
            )
        with psycopg.connect(_as(dsn, plain_user)) as connection:
            wanted = component.schema if schema == "component" else BUS
            assert install(connection, wanted).is_fresh
            assert install(connection, wanted).is_unchanged


def test_a_user_who_may_create_in_the_database_only_gets_hstore_in_the_rooms_schema(
    server: TestServer, plain_user: str, component: Component
) -> None:
    with server.clone() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(
                sql.SQL("grant create on database {} to {}").format(
                    sql.Identifier(connection.info.dbname), sql.Identifier(plain_user)
                )
            )
        with psycopg.connect(_as(dsn, plain_user)) as connection:
            install(connection, component.schema)
            found = connection.execute(
                "select extnamespace::regnamespace::text from pg_extension where extname = 'hstore'"
            ).fetchone()
            assert found == ("sample",)


def test_without_the_right_to_create_the_extension_the_error_says_whom_to_ask(
    server: TestServer, plain_user: str, component: Component, connect: Connect
) -> None:
    with server.clone() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(
                sql.SQL("create schema sample authorization {}").format(sql.Identifier(plain_user))
            )
        with (
            psycopg.connect(_as(dsn, plain_user)) as connection,
            pytest.raises(ExtensionMissing) as refused,
        ):
            install(connection, component.schema)
        assert "create extension hstore" in str(refused.value.hint)


def test_without_the_right_to_create_a_schema_the_error_says_whom_to_ask(
    empty_database: str, plain_user: str, component: Component
) -> None:
    with (
        psycopg.connect(_as(empty_database, plain_user)) as connection,
        pytest.raises(RightMissing) as refused,
    ):
        install(connection, component.schema)
    assert "grant create on database" in str(refused.value.hint)
