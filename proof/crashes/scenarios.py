"""What is there before each program starts, and what must be there when it has ended."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aio_pika
import psycopg

from postroad.bridge import DatabaseBridge, RabbitIn, RabbitOut, RabbitRoute
from postroad.bus import Bus
from postroad.cli.components import SCHEMAS
from postroad.coordination import install_bridges, make_bridges
from postroad.coordination.sample import install_sample
from postroad.intake import Credentials, operations
from postroad.intake.notice import create_queues
from postroad.postgres import run_blocking, status
from postroad.testing.run_folder import run_folder
from postroad.vault import Vault, new_key
from proof.crashes.programs import VETOED, celery_app, engine_of
from proof.crashes.work import Place
from tests.fixtures.rabbitmq import RabbitServer
from tests.fixtures.smtp import running_smtp
from tests.fixtures.sshd import SshServer

__all__ = ["MESSAGES", "SCENARIOS", "Scenario", "closing_servers"]

MESSAGES = 8
FILES = {f"{number}.dat": os.urandom(1000 * number) for number in range(4)}


@dataclass(frozen=True)
class Scenario:
    """A program, what is there before it starts, and what must be there when it has ended."""

    name: str
    title: str
    promise: str
    prepare: Callable[[Place], None]
    check: Callable[[Place], list[str]]
    databases: int = 1
    is_installed: bool = True


def _rows(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def _differs(what: str, found: object, wanted: object) -> list[str]:
    return [] if found == wanted else [f"{what}: {found}"]


# The bus.


def _prepare_work(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("create table done (n integer, what text)")
        bus = Bus(connection)
        bus.create_queue("work", payload="jsonb")
        bus.alter_consumer("work", "default", max_attempts=1000)
        bus.post_many("work", [{"n": number} for number in range(MESSAGES)])


def _check_once(place: Place) -> list[str]:
    done = sorted(number for (number,) in _rows(place.dsn, "select n from done"))
    return _differs("done", done, list(range(MESSAGES)))


def _check_at_least_once(place: Place) -> list[str]:
    done = {number for (number,) in _rows(place.dsn, "select n from done")}
    left = _rows(place.dsn, "select depth, dmq from mbus.status where queue = 'work'")
    return _differs("done", done, set(range(MESSAGES))) + _differs("left", left, [(0, 0)])


def _prepare_saga(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("create table done (n integer, what text)")
        for queue in ("rooms", "ticket", "cancel_rooms", "cancel_ticket"):
            Bus(connection).create_queue(queue, payload="jsonb")


def _check_saga(place: Place) -> list[str]:
    done = [what for (what,) in _rows(place.dsn, "select what from done order by ctid")]
    states = _rows(place.dsn, "select state from mbus.saga")
    problems = _differs("done", done, ["rooms", "cancel_rooms"])
    return problems + _differs("sagas", states, [("compensated",)])


def _prepare_operator(place: Place) -> None:
    with Bus(place.dsn) as bus:
        for queue in ("work", "other", "archive", "paused", "resumed", "kept", "planned"):
            bus.create_queue(queue, payload="jsonb")
        for queue in ("work", "other"):
            bus.alter_consumer(queue, "default", max_attempts=1)
            bus.post_many(queue, range(MESSAGES))
            for message in bus.lease(queue, amount=MESSAGES):
                bus.nack(message, error="refused")
        bus.alter_queue("kept", retain=timedelta(days=1))
        bus.post_many("kept", range(MESSAGES))
        bus.consume("kept", amount=MESSAGES)
        bus.pause("resumed")
        bus.schedule("nightly", "0 3 * * *", "planned", 1)
    place.facts["until"] = datetime.now(UTC).isoformat()


def _check_operator(place: Place) -> list[str]:
    problems = []
    with Bus(place.dsn) as bus:
        for queue in ("work", "archive", "kept"):
            found = sorted(each.data for each in bus.consume(queue, amount=10 * MESSAGES))
            problems += _differs(queue, found, list(range(MESSAGES)))
    paused = _rows(
        place.dsn, "select q.name from mbus.pause p join mbus.queue q on q.id = p.queue_id"
    )
    problems += _differs("paused", paused, [("paused",)])
    dead = _rows(place.dsn, "select sum(dmq)::integer from mbus.status")
    planned = _rows(place.dsn, "select paused_at is not null from mbus.schedules")
    return problems + _differs("dead", dead, [(0,)]) + _differs("schedules", planned, [(True,)])


# Celery.


def _prepare_celery(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("create table done (n integer)")
    with closing(celery_app(place.dsn)) as app:
        sent = [app.send_task("done", (number,)).id for number in range(MESSAGES)]
    place.servers["tasks"] = sent


def _check_celery(place: Place) -> list[str]:
    done = {number for (number,) in _rows(place.dsn, "select n from done")}
    with closing(celery_app(place.dsn)) as app:
        results = [app.AsyncResult(task).get(timeout=10) for task in place.servers["tasks"]]
    return _differs("done", done, set(range(MESSAGES))) + _differs(
        "results", results, list(range(MESSAGES))
    )


# Bridges.


def _prepare_bridge(place: Place) -> None:
    source, target = place.databases
    with Bus(source) as bus:
        bus.create_queue("work", payload="jsonb")
        asyncio.run(DatabaseBridge("out", source=source, target=target, queue="work").install())
        bus.post_many("work", [{"n": number} for number in range(MESSAGES)])


def _check_bridge(place: Place) -> list[str]:
    with Bus(place.databases[-1]) as bus:
        arrived = [message.data["n"] for message in bus.consume("work", amount=10 * MESSAGES)]
    return _differs("arrived", arrived, list(range(MESSAGES)))


_BROKERS: list[RabbitServer] = []


def _rabbit(place: Place) -> RabbitRoute:
    """Name a new queue of the broker of this process; its start takes seconds."""
    if not _BROKERS:
        _BROKERS.append(RabbitServer(run_folder() / "rabbitmq"))
        _BROKERS[0].start()
    place.facts |= {"url": _BROKERS[0].url, "queue": _BROKERS[0].unique("work")}
    return RabbitRoute(queue=place.facts["queue"])


@contextmanager
def closing_servers() -> Iterator[None]:
    """End the servers that scenarios share after the block."""
    try:
        yield
    finally:
        while _BROKERS:
            _BROKERS.pop().close()


def _prepare_rabbit_out(place: Place) -> None:
    route = _rabbit(place)
    with Bus(place.dsn) as bus:
        bus.create_queue("work", payload="jsonb")
        out = RabbitOut("out", source=place.dsn, url=place.facts["url"], queue="work", route=route)
        asyncio.run(out.install())
        bus.post_many("work", [{"n": number} for number in range(MESSAGES)])


async def _on_broker(place: Place, work: Callable[[Any, Any], Any]) -> Any:
    async with await aio_pika.connect(place.facts["url"]) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(
            place.facts["queue"], durable=True, arguments={"x-queue-type": "quorum"}
        )
        return await work(channel, queue)


def _check_rabbit_out(place: Place) -> list[str]:
    async def read(_: Any, queue: Any) -> list[tuple[str, bytes]]:
        found = []
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            found.append((message.message_id, message.body))
        return found

    arrived = asyncio.run(_on_broker(place, read))
    first = dict(reversed(arrived))
    wanted = sorted(f'{{"n": {number}}}' for number in range(MESSAGES))
    problems = _differs("bodies", sorted(body.decode() for body in first.values()), wanted)
    return problems + _differs("ids", len(set(arrived)), MESSAGES)


def _prepare_rabbit_in(place: Place) -> None:
    route = _rabbit(place)
    place.facts["messages"] = MESSAGES
    with Bus(place.dsn) as bus:
        bus.create_queue("work", payload="jsonb")
    inlet = RabbitIn("in", url=place.facts["url"], target=place.dsn, queue="work", route=route)
    asyncio.run(inlet.install())

    async def publish(channel: Any, _: Any) -> None:
        for number in range(MESSAGES):
            message = aio_pika.Message(
                b'{"n": %d}' % number, message_id=f"m{number}", content_type="application/json"
            )
            await channel.default_exchange.publish(message, place.facts["queue"])

    asyncio.run(_on_broker(place, publish))


# The intake.


def _prepare_intake(place: Place) -> None:
    sshd = SshServer(place.folder / "sshd")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    sshd.start()
    place.stack.callback(sshd.kill)
    files, key = sshd.new_folder(), new_key()
    for name, content in FILES.items():
        (files / name).write_bytes(content)
    server = run_blocking(
        place.dsn,
        operations.create_server,
        Vault([key]),
        Credentials(private_key=sshd.key()),
        {
            "host": "127.0.0.1",
            "port": sshd.port,
            "username": sshd.username,
            "directory": str(files),
            "looks": 1,
        },
    )
    place.facts |= {"key": key, "server": server["id"], "files": len(FILES)}

    async def queues() -> None:
        engine = engine_of(place.dsn, place.folder, key)
        await create_queues(engine)
        await engine.close()

    asyncio.run(queues())


def _check_intake(place: Place) -> list[str]:
    keys = dict(_rows(place.dsn, "select filename, object_key from intake.imported_files"))
    stored = {
        name: (place.folder / "store" / key).read_bytes() if key else None
        for name, key in keys.items()
    }
    problems = [
        f"{name} is not stored whole" for name, data in FILES.items() if stored.get(name) != data
    ]
    objects = [
        path
        for path in (place.folder / "store").rglob("*")
        if path.is_file() and ".uploads" not in path.parts
    ]
    notices = _rows(place.dsn, "select data from mbus.consumen_file_events_by_default(100)")
    problems += _differs("objects", len(objects), len(FILES))
    return problems + _differs("notices", len(notices), len(FILES))


# Coordination.

_SHOWN = """
create table shown (n bigint generated always as identity, name text);
create function show() returns trigger language plpgsql security definer as $$
begin insert into public.shown (name) values (new."Name"); return null; end $$;
create trigger show after insert or update on "DummyItem" for each row execute function show();
alter table "DummyItem" enable always trigger show;
"""
STATES = ("v1", "v2", "v3")


def _prepare_coordination(place: Place) -> None:
    writer, coordinator, reader = place.databases
    install_sample(writer)
    install_sample(reader, reader="lists")
    with psycopg.connect(coordinator, autocommit=True) as connection:
        connection.execute("select coordination.become('coordinator', 'main')")
    with psycopg.connect(reader, autocommit=True) as connection:
        connection.execute(_SHOWN)
    bridges = make_bridges(writer, coordinator, {"lists": reader})
    asyncio.run(install_bridges(bridges))
    insert = 'insert into "DummyItem" ("CorrelationId", "Name") values (gen_random_uuid(), %s)'
    with psycopg.connect(writer, autocommit=True) as connection:
        for number, name in enumerate(STATES):
            statement = 'update "DummyItem" set "Name" = %s' if number else insert
            connection.execute(statement, (name,))
        for name in ("good", VETOED):
            with connection.transaction():
                connection.execute("select coordination.set_mode('two-phase')")
                connection.execute(insert, (name,))
    place.facts["events"] = len(STATES) + 2


def _check_coordination(place: Place) -> list[str]:
    writer, coordinator, reader = place.databases
    rows = 'select "Id", "Name" from "DummyItem" order by "Id"'
    problems = _differs("rows of the Reader", _rows(reader, rows), _rows(writer, rows))
    names = [name for _, name in _rows(writer, rows)]
    problems += _differs("rows of the Writer", names, [STATES[-1], "good"])
    shown = [name for (name,) in _rows(reader, "select name from shown order by n")]
    states = [name for name in shown if name in STATES]
    # A snapshot may show a later state first; never one again, and none that was refused.
    if states != sorted(set(states)) or set(shown) - {*STATES, "good"}:
        problems.append(f"states that the Reader showed: {shown}")
    ended: dict[str, int] = defaultdict(int)
    for (state,) in _rows(coordinator, "select state from coordination.events"):
        ended[state] += 1
    return problems + _differs("events", dict(ended), {"Committed": 4, "Canceled": 1})


# Alerts.


def _prepare_alerts(place: Place) -> None:
    smtp = place.stack.enter_context(running_smtp())
    place.facts["url"] = smtp.url()
    place.servers["smtp"] = smtp


def _check_alerts(place: Place) -> list[str]:
    mails = place.servers["smtp"].taken
    ids: dict[str, set[str]] = defaultdict(set)
    for mail in mails:
        ids[str(mail["Subject"])].add(mail["Message-ID"])
    wanted = {f"[Postroad] {what}: disk full": 1 for what in ("error", "all clear")}
    found = {subject: len(each) for subject, each in ids.items()}
    states = _rows(place.dsn, "select distinct state from alerts.notice")
    return _differs("mails", found, wanted) + _differs("notices", states, [("sent",)])


# The migrator.


def _check_migrator(place: Place) -> list[str]:
    with psycopg.connect(place.dsn) as connection:
        return [
            f"{schema.name}: {found}"
            for schema in SCHEMAS
            if not (found := status(connection, schema)).is_current
        ]


SCENARIOS = (
    Scenario(
        "worker_in_transactions",
        "bus worker, transaction mode",
        "each message handled exactly once",
        _prepare_work,
        _check_once,
    ),
    Scenario(
        "worker_with_leases",
        "bus worker, lease mode",
        "each message handled at least once, none left or dead",
        _prepare_work,
        _check_at_least_once,
    ),
    Scenario(
        "saga_steps",
        "a saga that goes back",
        "one saga; its first step done once and undone once after it",
        _prepare_saga,
        _check_saga,
    ),
    Scenario(
        "celery_worker",
        "Celery worker on the broker",
        "each task run at least once, its result stored",
        _prepare_celery,
        _check_celery,
    ),
    Scenario(
        "bridge",
        "bridge, database to database",
        "each message arrives exactly once, in order",
        _prepare_bridge,
        _check_bridge,
        databases=2,
    ),
    Scenario(
        "rabbit_out",
        "bridge to RabbitMQ",
        "each message arrives at least once, repeated only under its own id",
        _prepare_rabbit_out,
        _check_rabbit_out,
    ),
    Scenario(
        "rabbit_in",
        "bridge from RabbitMQ",
        "each message is posted exactly once, in order",
        _prepare_rabbit_in,
        _check_bridge,
    ),
    Scenario(
        "intake",
        "intake, SFTP to a folder store",
        "each file stored once and whole, with one notice",
        _prepare_intake,
        _check_intake,
    ),
    Scenario(
        "coordination",
        "Writer, Coordinator and Reader",
        "the Reader shows states of the Writer in order, and never a vetoed one",
        _prepare_coordination,
        _check_coordination,
        databases=3,
    ),
    Scenario(
        "alerts",
        "alerts, outbox to mail",
        "alert and all-clear are sent at least once, repeated only under the same Message-ID",
        _prepare_alerts,
        _check_alerts,
    ),
    Scenario(
        "operator",
        "actions of console and command line",
        "repeated, each is done once: redrive, move, replay, pause, resume, pause of a schedule",
        _prepare_operator,
        _check_operator,
    ),
    Scenario(
        "migrator",
        "installation of all schemas",
        "the second installation completes the first",
        lambda _: None,
        _check_migrator,
        is_installed=False,
    ),
)
