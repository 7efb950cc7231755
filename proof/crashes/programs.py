"""The programs that are killed, each in a process of its own.

Each does its work and ends with 0 when there is nothing left to do.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery
from psycopg.conninfo import conninfo_to_dict

import postroad.broker
from postroad.alerts import AlertSender, clear_alert, raise_alert
from postroad.bridge import DatabaseBridge, PumpSettings, RabbitIn, RabbitOut, RabbitRoute
from postroad.bus import AsyncBus, AsyncMaintenance, AsyncWorker, Saga, WorkerSettings
from postroad.cli.components import SCHEMAS
from postroad.cli.main import cli
from postroad.coordination import Change, Coordinator, Reader, Writer, make_bridges
from postroad.intake import open_engine
from postroad.intake.cleanup import clean_up
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.notice import notify
from postroad.intake.transfer import transfer, upload
from postroad.intake.work import dispatch, reconcile
from postroad.postgres import install
from postroad.settings import AlertsSettings
from postroad.settings.intake import IntakeSettings
from postroad.testing import wait_until, wait_until_async
from postroad.vault import Vault
from proof.crashes.work import Work

__all__ = ["PROGRAMS", "VETOED", "celery_app", "engine_of", "run_program"]

LEASE = timedelta(seconds=2)
SHORT = timedelta(milliseconds=200)
TIMEOUT_SECONDS = 120
# A Reader refuses events with this name.
VETOED = "bad"


def _ask(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def _watching(dsn: str, statement: str, wanted: list[Any]) -> Callable[[], bool]:
    return lambda: _ask(dsn, statement) == wanted


async def _until(dsn: str, statement: str, wanted: list[Any], what: str) -> None:
    async def is_so() -> bool:
        return await asyncio.to_thread(_watching(dsn, statement, wanted))

    await wait_until_async(is_so, what=what, timeout_seconds=TIMEOUT_SECONDS)


def _left(*queues: str) -> str:
    names = ", ".join(f"'{queue}'" for queue in queues)
    return f"select sum(depth)::integer from mbus.status where queue in ({names})"


async def worker_in_transactions(work: Work) -> None:
    """Handle each message in the transaction that consumes it."""
    worker = AsyncWorker(work.dsn, WorkerSettings(listen=False))

    @worker.handler("work", batch=3)
    async def handle(messages: Any, connection: Any) -> None:
        for message in messages:
            await connection.execute("insert into done values (%s)", (message.data["n"],))

    async with worker:
        await _until(work.watched[0], _left("work"), [(0,)], "an empty queue")


async def worker_with_leases(work: Work) -> None:
    """Handle leased messages; the work is a transaction of its own."""
    worker = AsyncWorker(work.dsn, WorkerSettings(listen=False))

    @worker.handler("work", mode="lease", ttl=LEASE)
    async def handle(message: Any) -> None:
        async with await psycopg.AsyncConnection.connect(work.dsn) as connection:
            await connection.execute("insert into done values (%s)", (message.data["n"],))

    async with worker:
        await _until(work.watched[0], _left("work"), [(0,)], "an empty queue")


async def saga_steps(work: Work) -> None:
    """Start a saga once and handle its steps; the second one refuses."""
    worker = AsyncWorker(work.dsn, WorkerSettings(listen=False))

    def register(queue: str) -> None:
        @worker.handler(queue)
        async def handle(message: Any, connection: Any) -> None:
            if queue == "ticket":
                await connection.execute("select mbus.abort_saga(%s, 'sold out')", (message.iid,))
            else:
                await connection.execute("insert into done values (1, %s)", (queue,))

    for queue in ("rooms", "ticket", "cancel_rooms", "cancel_ticket"):
        register(queue)
    async with AsyncBus(work.dsn, listen=False) as bus, worker:
        async with await psycopg.AsyncConnection.connect(work.dsn) as connection:
            found = await connection.execute("select from mbus.saga for update")
            if await found.fetchone() is None:
                saga = Saga("trip", data={"n": 1}).step("rooms", do="rooms", undo="cancel_rooms")
                saga.step("ticket", do="ticket", undo="cancel_ticket", after=["rooms"])
                await saga.start(bus.using(connection))
        states = "select state from mbus.saga"
        await _until(work.watched[0], states, [("compensated",)], "a compensated saga")


async def bridge(work: Work) -> None:
    """Carry the messages of one database to another."""
    source, target = work.databases[:2]
    async with DatabaseBridge("out", source=source, target=target, queue="work"):
        left = "select sum(depth)::integer from mbus.status where consumer <> 'default'"
        await _until(work.watched[0], left, [(0,)], "all carried")


async def rabbit_out(work: Work) -> None:
    """Carry the messages of a database to RabbitMQ."""
    route = RabbitRoute(queue=work.facts["queue"])
    async with RabbitOut("out", source=work.dsn, url=work.facts["url"], queue="work", route=route):
        left = "select sum(depth)::integer from mbus.status where consumer <> 'default'"
        await _until(work.watched[0], left, [(0,)], "all carried")


async def rabbit_in(work: Work) -> None:
    """Carry the messages of RabbitMQ to a database."""
    route = RabbitRoute(queue=work.facts["queue"])
    async with RabbitIn(
        "in",
        url=work.facts["url"],
        target=work.dsn,
        queue="work",
        route=route,
        settings=PumpSettings(batch_messages=3),
    ):
        all_there = [(work.facts["messages"],)]
        await _until(work.watched[0], _left("work"), all_there, "all carried")


def celery_app(dsn: str) -> Celery:
    """Make an application with one task, which writes in a transaction of its own."""
    postroad.broker.register()
    place = conninfo_to_dict(dsn)
    url = f"mbus://{place['user']}@/{place['dbname']}?host={place['host']}&port={place['port']}"
    app = Celery("proof.crashes", broker=url, backend=url, set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options={"lease_seconds": 2},
        worker_hijack_root_logger=False,
    )

    @app.task(name="done", acks_late=True, shared=False)  # type: ignore[untyped-decorator]
    def done(number: int) -> int:
        with psycopg.connect(dsn) as connection:
            connection.execute("insert into done values (%s)", (number,))
        return number

    return app


def celery_worker(work: Work) -> None:
    """Run tasks until there are none, then shut down in order."""

    # The queue of the tasks, as the broker calls it.
    left = "select sum(depth)::integer from mbus.status where queue like 'k\\_celery\\_%'"

    def end() -> None:
        wait_until(
            _watching(work.watched[0], left, [(0,)]),
            what="an empty queue",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    quiet = ("--loglevel=error", "--without-mingle", "--without-gossip")
    celery_app(work.dsn).worker_main(["worker", "--pool=solo", "--queues=celery", *quiet])


def engine_of(dsn: str, folder: Path, key: str) -> Engine:
    """Make an engine of the intake whose store is a folder."""
    settings = IntakeSettings(
        store=str(folder / "store"), lease=LEASE, connect_timeout=timedelta(seconds=5)
    )
    return open_engine(dsn, settings, Vault([key]), folder / "data", "crash worker")


async def intake(work: Work) -> None:
    """Import the files of a server: list, fetch, store, notify, clean up, as the tasks do."""
    engine = engine_of(work.dsn, work.folder, work.facts["key"])
    completed = "select count(*) from intake.imported_files where status = 'completed'"
    is_done = _watching(work.watched[0], completed, [(work.facts["files"],)])

    async def are_all_there() -> bool:
        await discover(engine, work.facts["server"])
        while batches := await dispatch(engine, work.facts["server"]):
            for ids in batches:
                await notify(engine, await transfer(engine, ids))
        waiting = await reconcile(engine)
        for ids in waiting.uploads:
            await notify(engine, await upload(engine, ids))
        for ids in waiting.notices:
            await notify(engine, ids)
        await clean_up(engine)
        return await asyncio.to_thread(is_done)

    try:
        await wait_until_async(
            are_all_there, what="files that are imported", timeout_seconds=TIMEOUT_SECONDS
        )
    finally:
        await engine.close()


async def coordination(work: Work) -> None:
    """Run Writer, Coordinator, Reader and their bridges until every event has ended."""
    writer, coordinator, reader = work.databases
    quick = timedelta(seconds=1)

    async def refuse(_: int, changes: Sequence[Change]) -> str | None:
        return "a bad name" if any(one.content.get("Name") == VETOED for one in changes) else None

    bridges = make_bridges(writer, coordinator, {"lists": reader})
    known = "select count(*) from coordination.reader"
    ended = "select count(*) from coordination.events where finished_at is not null"
    async with AsyncExitStack() as stack:
        for service in (
            *bridges,
            Coordinator(coordinator, ask=quick, watch_interval=quick),
            Reader(reader, writer, repeat=quick, checks=[refuse]),
        ):
            await stack.enter_async_context(service)
        # An event that is published before the Reader is known is not for its vote.
        await _until(work.watched[1], known, [(1,)], "a known Reader")
        await stack.enter_async_context(Writer(writer, resend=quick))
        await _until(work.watched[1], ended, [(work.facts["events"],)], "events that have ended")

        async def is_same() -> bool:
            rows = 'select "Id", "Name" from "DummyItem" order by 1'
            return _ask(work.watched[0], rows) == _ask(work.watched[2], rows)

        await wait_until_async(is_same, what="the same rows", timeout_seconds=TIMEOUT_SECONDS)


async def alerts(work: Work) -> None:
    """Send an alert, clear it, and send the all-clear."""
    settings = AlertsSettings(
        channels={"mail": work.facts["url"]},
        group_window=SHORT,
        quiet_window=SHORT,
        backoff=SHORT,
        backoff_max=SHORT,
        poll_interval=SHORT,
        send_timeout=timedelta(seconds=1),
        lease=LEASE,
    )

    def report(is_open: bool) -> None:
        with psycopg.connect(work.dsn, autocommit=True) as connection:
            if is_open:
                raise_alert(connection, "disk", room="test", severity="error", title="disk full")
            else:
                clear_alert(connection, "disk")

    def sent(number: int) -> str:
        return f"select count(*) >= {number} from alerts.notice where state = 'sent'"

    async with AlertSender(work.dsn, settings):
        raised = "select from alerts.alert"
        if not await asyncio.to_thread(_ask, work.watched[0], raised):
            await asyncio.to_thread(report, True)
        await _until(work.watched[0], sent(1), [(True,)], "the alert sent")
        await asyncio.to_thread(report, False)
        await _until(work.watched[0], sent(2), [(True,)], "the all-clear sent")


async def _maintain(work: Work) -> None:
    """Let maintenance post what a replay owes."""
    async with AsyncMaintenance(work.dsn, SHORT):
        state = "select distinct state from mbus.replays"
        await _until(work.watched[0], state, [("finished",)], "the replay finished")


def operator(work: Work) -> None:
    """Give the commands of an operator: the console calls the same functions."""
    for words in (
        ("pause", "paused", "--reason", "a crash table"),
        ("dead", "redrive", "--all", "--queue", "work"),
        ("dead", "move", "--all", "--queue", "other", "--destination", "archive"),
        ("replay", "kept", "--since", "2020-01-01T00:00", "--until", work.facts["until"]),
        ("schedules", "pause", "nightly"),
        ("resume", "resumed"),
    ):
        cli.main(["--database-url", work.dsn, "bus", *words], "postroad", standalone_mode=False)
    asyncio.run(_maintain(work))


async def migrator(work: Work) -> None:
    """Install every schema, each in one transaction."""
    with psycopg.connect(work.dsn, autocommit=True) as connection:
        for schema in SCHEMAS:
            install(connection, schema)


Program = Callable[[Work], Coroutine[Any, Any, None] | None]
PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        worker_in_transactions,
        worker_with_leases,
        saga_steps,
        celery_worker,
        bridge,
        rabbit_out,
        rabbit_in,
        intake,
        coordination,
        alerts,
        operator,
        migrator,
    )
}


def run_program(name: str, orders: Connection, log: str) -> None:
    """Run a program in a process of its own, with its words in a file."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    program, work = PROGRAMS[name], Work.read(orders.recv())
    if inspect.iscoroutinefunction(program):
        asyncio.run(program(work))
    else:
        program(work)
