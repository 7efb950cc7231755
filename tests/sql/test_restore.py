"""A dump of a bus at work, restored: tables are as they were when it began, sequences are ahead."""

from __future__ import annotations

import re
import subprocess

import pytest
from psycopg import Connection

from postroad.testing import TestServer
from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    column,
    maintain,
    nobody_maintains,
    one,
    post,
    post_many,
    status,
    take,
)


@pytest.mark.parametrize("consumers", [1, 2])
def test_no_message_is_hidden_after_a_restore(bus: Connection, consumers: int) -> None:
    unsettled(bus, consumers)
    assert take(bus) == []
    bus.execute("select mbus.after_restore()")
    maintain(bus)
    assert take(bus) == [str(number) for number in range(1, 11)]
    post_many(bus, 3)
    maintain(bus)
    assert take(bus) == ["1", "2", "3"]


def unsettled(bus: Connection, consumers: int) -> None:
    """Post 10 messages that the figures of the queue hide, as in a dump of a bus at work."""
    if consumers == 2:
        bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 10)
    for name in column(
        bus, "select relname::text from pg_class where relname ~ '^q.[$]q[$].*[$]hint$'"
    ):
        bus.execute("select setval(%s, 8)", (f'mbus."{name}"',))
    bus.execute("""select setval('mbus."qs$q$head"', 3), setval('mbus."qs$q$tail"', 3)""")
    bus.execute(
        "select set_config('role', nspowner::regrole::text, true) from pg_namespace"
        " where nspname = 'mbus'"
    )
    bus.execute("select mbus._create_slot(q, s) from mbus.queue q, generate_series(0, 3) s")
    bus.execute("set local role none")


RESTORED = {
    "database": "update mbus.node set database_oid = 3",
    "table": "update mbus.node set table_oid = 1",
}


@pytest.mark.parametrize("change", RESTORED)
@pytest.mark.parametrize("consumers", [1, 2])
def test_takes_and_status_find_all_messages_of_a_dump_that_was_not_repaired(
    bus: Connection, consumers: int, change: str
) -> None:
    unsettled(bus, consumers)
    bus.execute(RESTORED[change].encode())
    nobody_maintains(bus)
    assert one(bus, "select mbus.is_restored()")
    assert status(bus, "ready") == 10
    assert take(bus) == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(
    "change", [*RESTORED.values(), "update mbus.node set system_identifier = 1"]
)
def test_maintenance_repairs_a_restored_bus_once(bus: Connection, change: str) -> None:
    unsettled(bus, 1)
    name = one(bus, "select name from mbus.node")
    bus.execute(change.encode())
    maintain(bus)
    assert not one(bus, "select mbus.is_restored()")
    assert take(bus) == [str(number) for number in range(1, 11)]
    assert one(bus, "select name from mbus.node") == name


def test_a_copy_by_template_issues_iids_of_its_own(
    server: TestServer, database: str, connect: Connect
) -> None:
    with connect(database, autocommit=True) as original:
        original.execute("select mbus.create_queue('q')")
        original.execute("select mbus.create_view('q')")
        iid = post(original, 1)
        source = original.info.dbname
    copy = f"{source}_copy"
    with connect(server.dsn("postgres"), autocommit=True) as admin:
        admin.execute(f'create database "{copy}" template "{source}"'.encode())
        try:
            with connect(server.dsn(copy), autocommit=True) as connection:
                assert one(connection, "select mbus.is_restored()")
                maintain(connection)
                assert not one(connection, "select mbus.is_restored()")
                node = one(connection, "select name from mbus.node")
                assert not iid.endswith(node)
                assert post(connection, 2).endswith(node)
                query = "select distinct split_part(iid, '@', 2) from "
                assert column(connection, query + "public.q_q") == [node]
                assert column(connection, query + "mbus.consumen_q_by_default(9)") == [node]
        finally:
            admin.execute(f'drop database "{copy}" with (force)'.encode())
    with connect(database, autocommit=True) as original:
        maintain(original)
        assert column(original, "select iid from mbus.consume('q')") == [iid]


@pytest.mark.parametrize("is_copy", [True, False])
def test_the_operator_decides_whether_a_restored_database_is_a_copy(
    bus: Connection, is_copy: bool
) -> None:
    iid = post_many(bus, 1)[0]
    bus.execute("update mbus.node set database_oid = (select min(oid::bigint) from pg_database)")
    bus.execute("select mbus.after_restore(is_copy => %s)", (is_copy,))
    assert (column(bus, "select iid from mbus.consume('q')") == [iid]) is not is_copy


def restore(server: TestServer, database: str, connection: Connection) -> None:
    """Dump a database and restore it on a connection to an empty one."""
    dump = subprocess.run(
        [server.embedded.cluster.binaries.program("pg_dump"), "--inserts", "-d", database],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    connection.execute(re.sub(r"^\\.*", "", dump, flags=re.MULTILINE).encode())
    connection.execute("reset search_path")


@pytest.mark.parametrize("is_copy", [True, False])
def test_what_was_paused_stays_paused_in_a_restored_dump(
    server: TestServer, database: str, empty_database: str, connect: Connect, is_copy: bool
) -> None:
    with connect(database, autocommit=True) as connection:
        connection.execute("select mbus.create_queue('q'), mbus.create_queue('other')")
        connection.execute("select mbus.pause('q', reason => 'why', paused_by => 'olga')")
        post(connection, 1)
    with connect(empty_database, autocommit=True) as connection:
        restore(server, database, connection)
        connection.execute("select mbus.after_restore(is_copy => %s)", (is_copy,))
        query = "select paused_by || ' ' || pause_reason from mbus.consumers where queue = 'q'"
        assert one(connection, query) == "olga why"
        assert take(connection) == []
        post(connection, 2, queue="other")
        assert take(connection, whose="other_by_default") == ["2"]
        connection.execute("select mbus.resume('q')")
        assert take(connection) == ["1"]


def test_a_dump_restored_without_repair_hides_no_message(
    server: TestServer, database: str, empty_database: str, connect: Connect
) -> None:
    with connect(database, autocommit=True) as connection:
        connection.execute("select mbus.create_queue('q')")
        post_many(connection, 10)
        maintain(connection)
        # A dump reads sequences after tables: here they have moved on.
        connection.execute("""select setval('mbus."qt$q$0$hint"', 8)""")
    with connect(empty_database, autocommit=True) as connection:
        restore(server, database, connection)
        assert one(connection, "select mbus.is_restored()")
        nobody_maintains(connection)
        assert status(connection, "ready") == 10
        assert len(take(connection)) == 10
