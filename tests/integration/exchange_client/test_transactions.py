"""The block's transaction: one, whole, and confirmed only if the database has committed it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from postroad.exchange.client import AsyncExchange, Exchange, TransactionEnded
from tests.fixtures.exchange_server import ExchangeProcess, unique
from tests.integration.exchange_client.erps import Erp, execute

INSERT = "insert into orders (id) values (?)"


@dataclass
class Parties:
    """A database with one message, and an instance of the ERP."""

    server: ExchangeProcess
    database: str
    mobile_id: str
    mobile: Exchange
    instance: Exchange

    def turn(self, erp: Erp, connection: Any, inside: Callable[[], None], **more: Any) -> None:
        """One process; `inside` runs between two insertions."""
        with self.instance.process(self.database, connection, **more) as work:
            for file in work.files:
                execute(erp.engine, connection, INSERT, (file.id,))
                inside()
                execute(erp.engine, connection, INSERT, (file.id + " again",))

    def state(self) -> str:
        (state,) = self.server.rows(
            "select state from exchange.message where database_id = %s and kind = 'message'",
            self.database,
        )
        return str(state[0])


@pytest.fixture
def parties(served: ExchangeProcess) -> Parties:
    mobile = unique("mobile")
    made = Parties(
        served, unique("db"), mobile, served.client(mobile), served.client(unique("erp"))
    )
    made.mobile.send(made.database, 1, id="m1")
    return made


@pytest.mark.parametrize("has_marker", [True, False], ids=["marker", "no-marker"])
def test_a_block_that_rolls_back_itself_is_not_confirmed(
    parties: Parties, erp: Erp, has_marker: bool
) -> None:
    connection = erp.connect()
    with pytest.raises(TransactionEnded):
        parties.turn(erp, connection, connection.rollback, has_marker=has_marker)
    assert erp.orders() == []
    if erp.engine == "firebird" and not has_marker:
        # Nothing there tells a roll-back from a commit: it must not be done twice by itself.
        assert parties.state() == "parked"
        connection.close()
        return
    assert parties.state() == "queued"
    parties.turn(erp, connection, lambda: None, has_marker=has_marker)
    connection.close()
    assert erp.orders() == ["m1", "m1 again"]
    assert parties.state() == "done"


@pytest.mark.parametrize("has_marker", [True, False], ids=["marker", "no-marker"])
def test_a_block_that_commits_itself_is_told_and_not_done_again(
    parties: Parties, erp: Erp, has_marker: bool
) -> None:
    connection = erp.connect()
    with pytest.raises(TransactionEnded):
        parties.turn(erp, connection, connection.commit, has_marker=has_marker)
    is_known = erp.engine != "firebird" or has_marker
    assert parties.state() == ("done" if is_known else "parked")
    parties.turn(erp, connection, lambda: None, has_marker=has_marker)
    connection.close()
    assert erp.orders() == (["m1", "m1 again"] if is_known else ["m1"])
    if has_marker:
        assert "OPEN" not in erp.markers().values()


def test_a_transaction_that_ends_during_prepare_is_not_confirmed(
    parties: Parties, erp: Erp, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = erp.connect()
    prepare = parties.instance.prepare

    def prepare_and_roll_back(*arguments: Any) -> Any:
        connection.rollback()
        return prepare(*arguments)

    monkeypatch.setattr(parties.instance, "prepare", prepare_and_roll_back)
    with pytest.raises(TransactionEnded):
        parties.turn(erp, connection, lambda: None)
    assert (erp.orders(), parties.state()) == ([], "queued")
    monkeypatch.undo()
    parties.turn(erp, connection, lambda: None)
    connection.close()
    assert (erp.orders(), parties.state()) == (["m1", "m1 again"], "done")


def test_a_block_that_commits_at_its_end_is_confirmed(
    parties: Parties, make_erp: Callable[[str], Erp]
) -> None:
    erp = make_erp("sqlite")
    connection = erp.connect()

    def block() -> None:
        with parties.instance.process(parties.database, connection) as work, connection:
            connection.execute(INSERT, ("m1",))
            work.reply(parties.mobile_id, 1)

    with pytest.raises(TransactionEnded):
        block()
    connection.close()
    assert (erp.orders(), parties.state()) == (["m1"], "done")
    assert [reply.body for reply in parties.mobile.receive()] == [1]


def test_a_block_that_commits_and_then_fails_is_put_aside(parties: Parties, erp: Erp) -> None:
    connection = erp.connect()

    def fail() -> None:
        connection.commit()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parties.turn(erp, connection, fail)
    connection.close()
    assert (erp.orders(), parties.state()) == (["m1"], "parked")


def test_a_block_that_commits_and_then_spoils_the_rest_is_put_aside(
    parties: Parties, make_erp: Callable[[str], Erp]
) -> None:
    erp = make_erp("postgres")
    with psycopg.connect(erp.dsn) as connection:

        def spoil() -> None:
            connection.commit()
            with suppress(psycopg.Error):
                connection.execute("select 1 / 0")

        with pytest.raises(TransactionEnded):
            _block(parties, connection, spoil, has_marker=True)
    assert (erp.orders(), parties.state()) == (["m1"], "parked")


@pytest.mark.parametrize("autocommit", [False, True], ids=["implicit", "autocommit"])
def test_a_block_may_choose_its_isolation_level(
    parties: Parties, make_erp: Callable[[str], Erp], autocommit: bool
) -> None:
    erp = make_erp("postgres")
    with psycopg.connect(erp.dsn, autocommit=autocommit) as connection:
        with parties.instance.process(parties.database, connection) as work:
            connection.execute("set transaction isolation level serializable")
            connection.execute("insert into orders (id) values ('m1')")
        assert work.is_confirmed
    assert erp.orders() == ["m1"]


async def test_without_blocking_a_block_that_commits_itself_is_not_done_again(
    parties: Parties, make_erp: Callable[[str], Erp]
) -> None:
    erp = make_erp("postgres")
    instance = AsyncExchange(parties.server.url, parties.server.token(unique("erp")))
    async with await psycopg.AsyncConnection.connect(erp.dsn) as connection:

        async def commit() -> None:
            async with instance.process(parties.database, connection):
                await connection.execute("set transaction isolation level serializable")
                await connection.execute("insert into orders (id) values ('m1')")
                await connection.commit()

        with pytest.raises(TransactionEnded):
            await commit()
    assert (erp.orders(), parties.state()) == (["m1"], "done")


def _block(
    parties: Parties, connection: Any, inside: Callable[[], None], *, has_marker: bool
) -> None:
    with parties.instance.process(parties.database, connection, has_marker=has_marker):
        connection.execute("insert into orders (id) values ('m1')")
        inside()


@pytest.mark.parametrize("autocommit", [False, True], ids=["implicit", "autocommit"])
@pytest.mark.parametrize("has_marker", [True, False], ids=["marker", "no-marker"])
def test_an_error_that_the_block_swallows_is_not_confirmed(
    parties: Parties, make_erp: Callable[[str], Erp], has_marker: bool, autocommit: bool
) -> None:
    """PostgreSQL answers ROLLBACK, and no error, to the COMMIT of a transaction that failed."""
    erp = make_erp("postgres")
    with psycopg.connect(erp.dsn, autocommit=autocommit) as connection:

        def swallow() -> None:
            with suppress(psycopg.Error):
                connection.execute("select 1 / 0")

        with pytest.raises(TransactionEnded):
            _block(parties, connection, swallow, has_marker=has_marker)
        assert parties.state() == "queued"
        with parties.instance.process(parties.database, connection, has_marker=has_marker) as work:
            connection.execute("insert into orders (id) values ('m1')")
            with suppress(psycopg.Error), connection.transaction():
                connection.execute("select 1 / 0")
        assert work.is_confirmed
    assert erp.orders() == ["m1"]
    assert parties.state() == "done"


@pytest.mark.parametrize("autocommit", [False, True], ids=["implicit", "autocommit"])
async def test_without_blocking_an_error_that_is_swallowed_is_not_confirmed(
    parties: Parties, make_erp: Callable[[str], Erp], autocommit: bool
) -> None:
    erp = make_erp("postgres")
    instance = AsyncExchange(parties.server.url, parties.server.token(unique("erp")))
    connect = psycopg.AsyncConnection.connect
    async with await connect(erp.dsn, autocommit=autocommit) as connection:

        async def swallow() -> None:
            async with instance.process(parties.database, connection, has_marker=False):
                await connection.execute("insert into orders (id) values ('m1')")
                with suppress(psycopg.Error):
                    await connection.execute("select 1 / 0")

        with pytest.raises(TransactionEnded):
            await swallow()
        assert parties.state() == "queued"
        async with instance.process(parties.database, connection) as work:
            await connection.execute("insert into orders (id) values ('m1')")
        assert work.is_confirmed
    assert erp.orders() == ["m1"]


def test_a_rollback_in_place_of_the_commit_is_noticed(
    parties: Parties, make_erp: Callable[[str], Erp]
) -> None:
    """Whatever spoilt the transaction after the last look: the answer to COMMIT decides."""
    erp = make_erp("postgres")
    with psycopg.connect(erp.dsn) as connection:
        prepare = parties.instance.prepare

        def spoil(process: str, document: dict[str, Any]) -> dict[str, Any]:
            answer = prepare(process, document)
            with suppress(psycopg.Error):
                connection.execute("select 1 / 0")
            return answer

        parties.instance.prepare = spoil  # type: ignore[method-assign]
        with pytest.raises(TransactionEnded):
            _block(parties, connection, lambda: None, has_marker=False)
    assert erp.orders() == []
    assert parties.state() == "queued"


def test_a_marker_that_was_read_too_early_is_read_again(parties: Parties, erp: Erp) -> None:
    """Another instance commits between the look at the marker and API_1: that is no restore."""
    first, second = erp.connect(), erp.connect()
    parties.turn(erp, first, lambda: None)
    parties.mobile.send(parties.database, 2, id="m2")
    other = parties.server.client(unique("other"))
    start = parties.instance.start

    def late(request: dict[str, Any]) -> dict[str, Any]:
        parties.instance.start = start  # type: ignore[method-assign]
        with other.process(parties.database, second) as work:
            execute(erp.engine, second, INSERT, (work.files[0].id,))
        return start(request)

    parties.instance.start = late  # type: ignore[method-assign]
    with parties.instance.process(parties.database, first) as work:
        assert work.status == "IDLE"
    first.close()
    second.close()
    assert erp.orders() == ["m1", "m1 again", "m2"]
    told = parties.server.rows(
        "select 1 from alerts.report where key like '%%' || %s", parties.database
    )
    assert told == []
