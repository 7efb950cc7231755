"""An instance dies or freezes anywhere: each message has its effect once, each reply comes once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.exchange.client import Exchange, ExchangeClientError
from postroad.testing import wait_until
from tests.fixtures.exchange_server import ExchangeProcess, unique
from tests.fixtures.holding_proxy import HoldingProxy, holding_proxy
from tests.integration.exchange_client.erps import ENGINES, Erp, execute

pytestmark = pytest.mark.chaos

# Only `make stress` kills after steps that leave nothing behind, and freezes everywhere.
IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
LASTING = {"http.start", "block", "http.prepare", "session.execute", "session.commit"}
FREEZES = [
    ("postgres", "block"),
    ("postgres", "http.prepare"),
    ("postgres", "session.execute"),
    ("sqlite", "block"),
    ("firebird", "http.prepare"),
]
if IS_FULL:
    FREEZES = list(itertools.product(("postgres", "sqlite", "firebird"), LASTING - {"http.start"}))


class Stage:
    """One ERP database, a program that forks instances on it, and an instance that comes after."""

    def __init__(self, server: ExchangeProcess, erp: Erp) -> None:
        self.server = server
        self.erp = erp
        self.after = server.client(unique("after"), patience=20)
        self._mailboxes: dict[str, Exchange] = {}
        self._forks = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.exchange_client.victims"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        # The table of markers is there, so that every run has the same places.
        self.work_off(unique("db"))

    def close(self) -> None:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.close()
        self._forks.wait(20)
        self._forks.stdout.close()

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps(order) + "\n")
        self._forks.stdin.flush()
        answer: dict[str, Any] = json.loads(self._forks.stdout.readline())
        return answer

    def post(self) -> str:
        """Post a message to a database of its own, whose name is also the message's."""
        database = unique("db")
        mailbox = self.server.client(unique("mobile"))
        mailbox.send(database, {"order": database}, id=database)
        self._mailboxes[database] = mailbox
        return database

    def live(self, database: str, point: int = 0, **more: Any) -> dict[str, Any]:
        return self.ask(
            {
                "engine": self.erp.engine,
                "dsn": self.erp.dsn,
                "url": self.server.url,
                "token": self.server.token(unique("victim")),
                "database": database,
                "point": point,
                **more,
            }
        )

    def work_off(self, database: str) -> None:
        """Work as another instance until there is nothing left to do, and nothing in doubt."""

        def is_worked_off() -> bool:
            # Idle alone does not tell: a file that came back may be waiting for its next turn.
            states = self.server.states(database)
            return self.turn(database) == "IDLE" and (not states or "done" in states)

        wait_until(is_worked_off, what=f"{database} worked off", timeout_seconds=60)

    def turn(self, database: str) -> str:
        """Make one process, if there is something to do."""
        connection = self.erp.connect()
        try:
            with self.after.process(database, connection) as work:
                for file in work.files:
                    statement = "insert into orders (id, process_id) values (?, ?)"
                    execute(self.erp.engine, connection, statement, (file.id, work.id))
                    work.reply(file.sender, {"taken": file.id}, reply_to=file)
        finally:
            connection.close()
        return work.status

    def check(self, databases: dict[str, str]) -> None:
        """Assert that each message had its effect once and was answered once."""
        orders = [row[0] for row in self.erp.run("select id from orders")]
        for database, what in databases.items():
            assert orders.count(database) == 1, what
            states = self.server.states(database)
            # Of processes that were aborted.
            states.pop("reply discarded", None)
            assert states == {"done": 1, "reply waiting": 1}, what
            (reply,) = self._mailboxes[database].receive()
            assert reply.body == {"taken": database}, what
            # DONE is recorded after the answer.
            wait_until(partial(self._are_ended, database), what=f"processes at their end: {what}")

    def _are_ended(self, database: str) -> bool:
        return not self.server.rows(
            "select from exchange.process"
            " where database_id = %s and state not in ('DONE', 'ABORTED', 'CANCELLED')",
            database,
        )


@pytest.fixture
def stage(
    hasty_exchange: ExchangeProcess, make_erp: Callable[[str], Erp], request: pytest.FixtureRequest
) -> Iterator[Stage]:
    stage = Stage(hasty_exchange, make_erp(request.param))
    yield stage
    stage.close()


each_engine = pytest.mark.parametrize("stage", ENGINES, indirect=True)
each_network_engine = pytest.mark.parametrize("stage", ["postgres", "firebird"], indirect=True)


@each_engine
def test_an_instance_may_be_killed_after_any_step(stage: Stage) -> None:
    alive = stage.post()
    places = stage.live(alive)["places"]
    assert {"block", "http.start", "http.prepare", "session.commit", "http.commit"} <= set(places)
    databases = {alive: "nobody was killed"}
    for point, name in enumerate(places, 1):
        if not IS_FULL and (name not in LASTING or point < places.index("http.start")):
            continue
        database = stage.post()
        ended = stage.live(database, point, action="kill")
        assert ended["killed"] == signal.SIGKILL
        databases[database] = f"killed after {point}. {name}"
    for database in databases:
        stage.work_off(database)
    stage.check(databases)


@pytest.mark.parametrize(("stage", "where"), FREEZES, indirect=["stage"])
def test_an_instance_may_freeze_for_longer_than_the_time_out(stage: Stage, where: str) -> None:
    places = stage.live(stage.post())["places"]
    point = places.index(where) + 1
    if where.startswith("session"):
        # The one that follows `prepare`: the marker is written, or COMMIT has returned.
        point = places.index("session.commit", places.index("http.prepare"))
        point += where == "session.commit"
    database = stage.post()
    frozen = stage.live(database, point, action="stop")
    assert frozen["stopped"]
    over = "select state in ('UNKNOWN', 'CANCELLED') from exchange.process where database_id = %s"
    wait_until(lambda: stage.server.rows(over, database) == [(True,)], what="timed out")
    try:
        seen = stage.turn(database)
    except sqlite3.OperationalError:
        # SQLite has one writer, and that one is frozen.
        seen = "LOCKED"
    os.kill(frozen["pid"], signal.SIGCONT)
    ended = stage.ask({"wait": frozen["pid"]})
    if seen == "STARTED":
        # Others had the files by then; what the frozen one had done was rolled back.
        assert ended["raised"] == "ProcessCancelled"
    stage.work_off(database)
    stage.check({database: f"{where}: another saw {seen}, then {ended}"})


class CommitCase:
    """An instance that is just about to send COMMIT, through a proxy."""

    def __init__(self, stage: Stage, proxy: HoldingProxy, folder: Path) -> None:
        places = stage.live(stage.post())["places"]
        marker = places.index("session.commit", places.index("http.prepare"))
        self.database = stage.post()
        flag = folder / "instance"
        self.pid = stage.live(
            self.database,
            marker,
            action="announce",
            flag=str(flag),
            dsn=_through(stage.erp, proxy.port),
        )["pid"]
        wait_until(flag.with_suffix(".here").exists, what="about to commit")
        self._go = flag.with_suffix(".go")

    def go(self) -> None:
        self._go.touch()


def _through(erp: Erp, port: int) -> str:
    if erp.engine == "firebird":
        _, _, path = erp.dsn.removeprefix("inet://").partition("/")
        return f"inet://127.0.0.1:{port}/{path}"
    return psycopg.conninfo.make_conninfo(erp.dsn, host="127.0.0.1", port=port)


def _target(erp: Erp) -> int | str:
    if erp.engine == "firebird":
        return int(erp.dsn.removeprefix("inet://").partition("/")[0].rsplit(":", 1)[1])
    parts = psycopg.conninfo.conninfo_to_dict(erp.dsn)
    return f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}"


@each_network_engine
@pytest.mark.parametrize("end", ["kill", "cut"])
def test_an_instance_may_die_between_commit_and_its_return(
    stage: Stage, tmp_path: Path, end: str
) -> None:
    with holding_proxy(_target(stage.erp)) as proxy:
        case = CommitCase(stage, proxy, tmp_path)
        proxy.holds_answers.set()
        case.go()
        assert proxy.held.wait(20)
        # COMMIT was executed; its answer is on the way and never arrives.
        if end == "kill":
            os.kill(case.pid, signal.SIGKILL)
        else:
            proxy.cut()
        ended = stage.ask({"wait": case.pid})
    assert ended["killed"] == signal.SIGKILL if end == "kill" else ended["raised"]
    stage.work_off(case.database)
    stage.check({case.database: str(ended)})
    assert list(stage.erp.markers().values()).count("ABORTED") == 0


@each_network_engine
def test_a_commit_that_never_arrived_is_settled_as_aborted(stage: Stage, tmp_path: Path) -> None:
    with holding_proxy(_target(stage.erp)) as proxy:
        case = CommitCase(stage, proxy, tmp_path)
        proxy.holds_requests.set()
        case.go()
        assert proxy.held.wait(20)
        proxy.cut()
        ended = stage.ask({"wait": case.pid})
    assert ended["raised"] == "OutcomeUnknown"
    stage.work_off(case.database)
    stage.check({case.database: str(ended)})
    assert list(stage.erp.markers().values()).count("ABORTED") == 1


def test_the_client_of_an_absent_exchange_says_so(make_erp: Callable[[str], Erp]) -> None:
    connection = make_erp("sqlite").connect()
    exchange = Exchange("http://127.0.0.1:9", "t", patience=0.2)
    process = exchange.process("db", connection)
    with pytest.raises(ExchangeClientError, match="Connection refused"), process:
        pass
    assert not connection.in_transaction
    connection.close()
