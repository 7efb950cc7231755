"""docs/howto/migrate-from-mbus.md, step by step, on a schema with the original's tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection, sql

from postroad.postgres.binaries import find_binaries
from postroad.testing import TestServer
from tests.docs.snippets import DOCS
from tests.sql.calls import column, one, rows

PAGE = DOCS / "howto" / "migrate-from-mbus.md"
# The original's own tables. Its late versions are an extension, the early ones a script.
TABLES = """
    create table mbus.qt_model (
      id bigint, added timestamp not null, iid text collate "C" not null unique,
      delayed_until timestamp not null, expires timestamp, received integer[],
      headers hstore, properties hstore, data hstore);
    create table mbus.queue (
      id serial, qname text unique, consumers_cnt integer, is_roles_security_model boolean);
    create table mbus.consumer (
      id serial, name text, qname text, selector text, added timestamp);
    create table mbus.trigger (src text, dst text, selector text, unique (src, dst));
    create table mbus.dmq (like mbus.qt_model including all);
"""
CONTROL = "default_version = '1.0'\nschema = mbus\nrelocatable = false\nrequires = 'hstore'\n"
# What it has after these calls of its own: two queues, one restricted to roles; consumers with a
# selector; a trigger; a view; messages in every state.
CALLS = """
    create table mbus."qt$orders" (like mbus.qt_model including all);
    create table mbus."qt$limits" (like mbus.qt_model including all);
    insert into mbus.trigger values ('orders', 'limits', $$(t.data->'n') in ('1', '40')$$);
    insert into mbus.queue (qname, consumers_cnt, is_roles_security_model)
    values ('orders', 128, true), ('limits', 16, null);
    insert into mbus.consumer (name, qname, selector, added) values
      ('default', 'orders', null, now() - interval '1 year'),
      ('billing', 'orders', $$(t.properties->'STATE')='DONE'$$, now() - interval '1 year'),
      ('late', 'orders', '(1=1)', now() - interval '50 minutes'),
      ('default', 'limits', '', now() - interval '1 year');
    insert into mbus."qt$orders"
    select n, now() - (61 - n) * interval '1 minute', 'orders.' || n, now() - interval '1 hour',
           case n when 6 then now() - interval '1 minute' end,
           case n when 3 then '{1}'::integer[] end, 'source_db=>old, enqueue_time=>x',
           'STATE=>DONE', hstore('n', n::text)
    from generate_series(1, 6) n;
    insert into mbus."qt$orders"
    values (20, now(), 'orders.20', now() + interval '1 hour', null, null, '', '', 'n=>20');
    insert into mbus."qt$limits"
    values (30, now() - interval '2 hours', 'limits.30', now() - interval '1 hour', null, null,
            'consume_after=>"{orders.1,orders.0}"', null, 'n=>30');
    create function mbus.post_orders(data hstore) returns text language sql as 'select null::text';
    create function mbus._view_orders() returns trigger language plpgsql
      as 'begin perform mbus.post_orders(new.data); return new; end';
    create view public.orders_q as select data from mbus."qt$orders";
    create trigger post instead of insert on public.orders_q
      for each row execute function mbus._view_orders();
"""


def create_extension(connection: Connection) -> None:
    """Install the original as the extension `mbus`, as its late versions are."""
    # Not the folder of the test, which the user of the server cannot read.
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "extension"
        files.mkdir()
        files.parent.chmod(0o755)
        (files / "mbus.control").write_text(CONTROL, encoding="utf-8")
        (files / "mbus--1.0.sql").write_text(TABLES, encoding="utf-8")
        path = sql.Literal(f"{folder}:$system")
        connection.execute(sql.SQL("set extension_control_path = {}").format(path))
        connection.execute("create extension mbus cascade")


@pytest.fixture(params=["script", "extension"])
def original(
    request: pytest.FixtureRequest, empty_database: str, server: TestServer
) -> Iterator[str]:
    name = psycopg.conninfo.conninfo_to_dict(empty_database)["dbname"]
    roles = [f"mbus_{name}_post_orders", f"mbus_{name}_consume_orders_by_default"]
    roles += [f"web_{name}", f"mbus_{name}_admin"]
    with psycopg.connect(empty_database, autocommit=True) as connection:
        if request.param == "extension":
            create_extension(connection)
        else:
            connection.execute("create extension hstore; create schema mbus;" + TABLES)
        connection.execute(CALLS)
        for role in roles:
            connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        connection.execute(
            sql.SQL("grant {} to {}").format(sql.Identifier(roles[0]), sql.Identifier(roles[2]))
        )
    yield empty_database
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        owned = connection.execute(
            "select rolname from pg_roles where rolname like %s or rolname = %s",
            (f"mbus\\_{name}\\_%", roles[2]),
        ).fetchall()
    with psycopg.connect(empty_database, autocommit=True) as connection:
        for (role,) in owned:
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def steps(dsn: str) -> list[str]:
    """Return the commands of the page for this database."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    return [
        block.replace("psql shop", f'psql -v ON_ERROR_STOP=1 "{dsn}"')
        .replace("postgresql:///shop", f'"{dsn}"')
        .replace("shop_web", f"web_{name}")
        for block in blocks
    ]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{find_binaries().folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", command],
        env={**os.environ, "PATH": path, "POSTROAD_DATA_FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def taken(connection: Connection, queue: str, consumer: str = "default") -> list[str]:
    return column(connection, f"select data->'n' from mbus.consumen_{queue}_by_{consumer}(100)")


def test_every_step_of_the_page_moves_the_original(original: str, tmp_path: Path) -> None:
    for step in steps(original):
        run(step, tmp_path)
    with psycopg.connect(original, autocommit=True) as connection:
        # A message waits for the unread predecessor only, in another queue.
        assert taken(connection, "limits") == []
        assert taken(connection, "orders", "billing") == ["1", "2", "3", "4", "5"]
        assert taken(connection, "orders", "late") == []
        assert taken(connection, "limits") == []
        # What the consumer had read before is not delivered again, nor what had expired.
        assert taken(connection, "orders") == ["1", "2", "4", "5"]
        assert taken(connection, "limits") == ["30"]
        assert one(connection, "select count(*) from mbus.delayed") == 1
        # A member of the old role may post, through the view and the function, and nobody else.
        web = sql.Identifier(f"web_{connection.info.dbname}")
        connection.execute(sql.SQL("set role {}").format(web))
        connection.execute("insert into public.orders_q (data) values ('n=>40')")
        connection.execute("reset role")
        assert taken(connection, "orders") == ["40"]
        # The trigger copies what is posted now, and has not copied what was moved.
        assert taken(connection, "limits") == ["40"]
        restricted = "select queue from mbus.queues where is_roles_security_model"
        assert rows(connection, restricted) == [("orders",)]
        connection.execute("drop schema mbus_old cascade")
        assert one(connection, "select count(*) from pg_extension where extname = 'mbus'") == 0
        connection.execute("insert into public.orders_q (data) values ('n=>41')")
        assert taken(connection, "orders") == ["41"]


def test_a_selector_without_the_alias_is_refused_and_nothing_is_created(
    original: str, tmp_path: Path
) -> None:
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute(
            "update mbus.consumer set selector = $$(properties->'STATE')='DONE'$$"
            " where name = 'billing'"
        )
        first, second, third, fourth, *_ = steps(original)
        for step in (first, second, third):
            run(step, tmp_path)
        with pytest.raises(AssertionError, match="selector"):
            run(fourth, tmp_path)
        assert one(connection, "select count(*) from mbus.queues") == 0
