"""The marker decides: committed, never to be committed, or still under way. On each engine."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from postroad.exchange.client.standalone import (
    ConnectionUnsupported,
    clean,
    ensure_table,
    markers,
    session_of,
    settle_process,
    write_marker,
)
from tests.integration.exchange_client.erps import Erp, execute

DATABASE = "db_a"


class Instance:
    """One instance of an ERP: a connection and the client's verbs on it."""

    def __init__(self, erp: Erp) -> None:
        self.erp = erp
        self.connection = erp.connect()
        self.session = session_of(self.connection)

    def work(self, process: str) -> None:
        """Do what a block does, up to COMMIT."""
        self.session.begin()
        self.session.guard(f"block-{process}", True)
        statement = "insert into orders (id, process_id) values (?, ?)"
        execute(self.erp.engine, self.connection, statement, (process, process))
        write_marker(self.session, process, DATABASE, f"block-{process}")
        self.session.unguard(f"block-{process}")


@pytest.fixture
def instances(erp: Erp) -> Iterator[tuple[Instance, Instance]]:
    pair = Instance(erp), Instance(erp)
    ensure_table(pair[0].session, may_create=True)
    yield pair
    for each in pair:
        each.connection.close()


def test_the_table_is_made_once(instances: tuple[Instance, Instance]) -> None:
    for each in instances:
        ensure_table(each.session, may_create=True)
        ensure_table(each.session, may_create=False)
        assert each.session.is_idle()


def test_a_committed_process_is_settled_as_committed(
    instances: tuple[Instance, Instance], erp: Erp
) -> None:
    worker, resolver = instances
    worker.work("p1")
    worker.session.commit()
    assert settle_process(resolver.session, "p1", DATABASE) == "COMMITTED"
    assert settle_process(resolver.session, "p1", DATABASE) == "COMMITTED"
    assert erp.orders() == ["p1"]


def test_a_process_under_way_is_not_settled(instances: tuple[Instance, Instance], erp: Erp) -> None:
    worker, resolver = instances
    worker.work("p1")
    assert settle_process(resolver.session, "p1", DATABASE) == "INFLIGHT"
    worker.session.commit()
    assert settle_process(resolver.session, "p1", DATABASE) == "COMMITTED"
    assert erp.orders() == ["p1"]


def test_what_was_settled_as_aborted_can_never_commit(
    instances: tuple[Instance, Instance], erp: Erp
) -> None:
    worker, resolver = instances
    assert settle_process(resolver.session, "p1", DATABASE) == "ABORTED"
    with pytest.raises(Exception, match=r"(?i)unique|violation|primary"):
        worker.work("p1")
    worker.session.rollback()
    assert erp.orders() == []
    assert settle_process(worker.session, "p1", DATABASE) == "ABORTED"
    assert erp.markers() == {"p1": "ABORTED"}


def test_what_rolled_back_is_settled_as_aborted(
    instances: tuple[Instance, Instance], erp: Erp
) -> None:
    worker, resolver = instances
    worker.work("p1")
    worker.session.rollback()
    assert settle_process(resolver.session, "p1", DATABASE) == "ABORTED"
    assert erp.orders() == []


def test_a_worker_whose_connection_is_gone_is_settled_as_aborted(
    instances: tuple[Instance, Instance], erp: Erp
) -> None:
    worker, resolver = instances
    worker.work("p1")
    worker.connection.close()
    assert settle_process(resolver.session, "p1", DATABASE) == "ABORTED"
    assert erp.orders() == []


def test_the_sequence_counts_commits_per_database(instances: tuple[Instance, Instance]) -> None:
    worker, resolver = instances
    assert markers(resolver.session, DATABASE) == (0, {})
    for process in ("p1", "p2"):
        worker.work(process)
        worker.session.commit()
    settle_process(resolver.session, "p3", DATABASE)
    assert markers(resolver.session, DATABASE) == (2, {"p1": "COMMITTED", "p2": "COMMITTED"})
    assert markers(resolver.session, "another") == (0, {})
    for each in instances:
        assert each.session.is_idle()


def test_old_markers_are_forgotten_but_never_the_highest(
    instances: tuple[Instance, Instance], erp: Erp
) -> None:
    worker, resolver = instances
    for process in ("p1", "p2", "p3"):
        worker.work(process)
        worker.session.commit()
    settle_process(resolver.session, "p4", DATABASE)
    erp.run("update exchange_marker set is_acked = 1 where process_id <> 'p2'")
    resolver.session.begin()
    clean(resolver.session, days=-1)
    resolver.session.commit()
    assert erp.markers() == {"p2": "COMMITTED", "p3": "COMMITTED"}


def test_rows_come_as_tuples_whatever_the_program_prefers(erp: Erp) -> None:
    instance = Instance(erp)
    if erp.engine == "postgres":
        instance.connection.row_factory = dict_row
    elif erp.engine == "sqlite":
        instance.connection.row_factory = lambda _, row: {"row": row}
    ensure_table(instance.session, may_create=True)
    assert markers(instance.session, DATABASE) == (0, {})
    instance.connection.close()


def test_a_connection_that_commits_by_itself_is_put_into_a_transaction(erp: Erp) -> None:
    instance = Instance(erp)
    if erp.engine == "postgres":
        instance.connection.autocommit = True
    elif erp.engine == "sqlite":
        instance.connection.isolation_level = None
    ensure_table(instance.session, may_create=True)
    instance.work("p1")
    assert not instance.session.is_idle()
    instance.session.rollback()
    assert erp.orders() == []
    instance.work("p1")
    instance.session.commit()
    assert erp.orders() == ["p1"]
    instance.connection.close()


def test_other_connections_are_refused(database: str) -> None:
    with pytest.raises(ConnectionUnsupported):
        session_of(object())
    with psycopg.connect(database) as connection:
        assert session_of(connection).is_idle()
