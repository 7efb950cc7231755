"""Components killed with SIGKILL at every message that they send to the database.

A run without a kill counts the messages. Then, for each of them (a spread of them in a quick run),
the program starts in a new database and is killed at it: once before the message reaches the
server, once after the server has answered and before the program knows. It is started again, ends
its work, and the rows show what was done. The exchange has a table of its own, by system calls:
docs/operate/exchange-crash-table.md.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.bridge import DatabaseBridge
from postroad.bus import Bus
from postroad.cli.components import SCHEMAS
from postroad.postgres import status
from postroad.testing import TestServer
from proof.crashes.proxy import KillingProxy
from proof.faults.proxy import Side
from proof.interleavings import running_server
from proof.options import ROOT, Options
from proof.report import Report, Table

__all__ = ["SCENARIOS", "Scenario", "explore", "run"]

MESSAGES = 8
QUICK_POINTS = 8
PROGRAM_SECONDS = 180.0
SIDES: tuple[Side, ...] = ("request", "reply")


@dataclass(frozen=True)
class Scenario:
    """A program, what is there before it starts, and what must be there when it has ended."""

    name: str
    title: str
    promise: str
    prepare: Callable[[str, str], None]
    check: Callable[[str, str], list[str]]
    is_installed: bool = True


@dataclass
class Result:
    """Kills of one scenario."""

    messages: int
    kills: int = 0
    violations: tuple[str, ...] = ()


def _prepare_work(dsn: str, _: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table done (n integer, what text)")
        bus = Bus(connection)
        bus.create_queue("work", payload="jsonb")
        bus.alter_consumer("work", "default", max_attempts=1000)
        bus.post_many("work", [{"n": number} for number in range(MESSAGES)])


def _prepare_saga(dsn: str, _: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table done (n integer, what text)")
        for queue in ("rooms", "ticket", "cancel_rooms", "cancel_ticket"):
            Bus(connection).create_queue(queue, payload="jsonb")


def _prepare_bridge(source: str, target: str) -> None:
    with psycopg.connect(source, autocommit=True) as connection:
        Bus(connection).create_queue("work", payload="jsonb")

    async def install() -> None:
        await DatabaseBridge("out", source=source, target=target, queue="work").install()

    asyncio.run(install())
    with Bus(source) as bus:
        bus.post_many("work", [{"n": number} for number in range(MESSAGES)])


def _rows(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def _check_once(dsn: str, _: str) -> list[str]:
    done = sorted(number for (number,) in _rows(dsn, "select n from done"))
    return [] if done == list(range(MESSAGES)) else [f"done: {done}"]


def _check_at_least_once(dsn: str, _: str) -> list[str]:
    done = {number for (number,) in _rows(dsn, "select n from done")}
    left = _rows(dsn, "select depth, dmq from mbus.status where queue = 'work'")
    problems = [] if done == set(range(MESSAGES)) else [f"done: {sorted(done)}"]
    return problems + ([] if left == [(0, 0)] else [f"left: {left}"])


def _check_saga(dsn: str, _: str) -> list[str]:
    done = [what for (what,) in _rows(dsn, "select what from done order by ctid")]
    states = _rows(dsn, "select state from mbus.saga")
    problems = [] if done == ["rooms", "cancel_rooms"] else [f"done: {done}"]
    return problems + ([] if states == [("compensated",)] else [f"sagas: {states}"])


def _check_bridge(_: str, target: str) -> list[str]:
    with Bus(target) as bus:
        arrived = [message.data["n"] for message in bus.consume("work", amount=10 * MESSAGES)]
    return [] if arrived == list(range(MESSAGES)) else [f"arrived: {arrived}"]


def _check_migrator(dsn: str, _: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
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
        "bridge",
        "bridge, database to database",
        "each message arrives exactly once, in order",
        _prepare_bridge,
        _check_bridge,
    ),
    Scenario(
        "migrator",
        "installation of all schemas",
        "the second installation completes the first",
        lambda *_: None,
        _check_migrator,
        is_installed=False,
    ),
)


def run(options: Options) -> Report:
    """Explore every scenario; words after `--` choose some."""
    names = set(options.arguments)
    chosen = [each for each in SCENARIOS if not names or each.name in names]
    results: dict[str, Result] = {}
    with running_server() as server:
        for scenario in chosen:
            until = None
            if options.seconds is not None:
                until = time.monotonic() + options.seconds / len(chosen)
            results[scenario.name] = explore(
                server, scenario, None if options.is_full else QUICK_POINTS, options.seed, until
            )
    rows = tuple(
        (
            scenario.title,
            str(results[scenario.name].messages),
            str(results[scenario.name].kills),
            scenario.promise,
            str(len(results[scenario.name].violations)),
        )
        for scenario in chosen
    )
    limits = ["Message counts differ a little from run to run: workers poll."]
    if options.seconds is not None:
        limits.append(f"Ended after {options.seconds:.0f} s; the order of the kills is random.")
    if not options.is_full:
        limits.append(f"Quick run: at most {QUICK_POINTS} messages of each program, evenly spread.")
    limits.append(
        "Broker, intake, coordination, alerts and console are not in this table yet; their"
        " processes are killed at random by tests/chaos."
    )
    return Report(
        title="Crash table",
        introduction=(
            "Each program is killed with SIGKILL at its messages to the database: before the"
            " message arrives, and after the server has answered it. It is started again and ends"
            " its work; then the rows must show what is promised."
        ),
        facts=(
            ("programs", str(len(chosen))),
            ("kills", str(sum(result.kills for result in results.values()))),
        ),
        tables=(
            Table("Programs", ("program", "messages", "kills", "promise", "violations"), rows),
        ),
        violations=tuple(
            f"{name}: {text}" for name, result in results.items() for text in result.violations
        ),
        limits=tuple(limits),
    )


def explore(
    server: TestServer,
    scenario: Scenario,
    points: int | None,
    seed: int = 1,
    until: float | None = None,
) -> Result:
    """Count the messages of a run; kill at each of them, or at so many of them, in random order."""
    result = Result(_one(server, scenario, None, "request")[0])
    step = 1 if points is None else max(1, result.messages // points)
    violations = []
    places = list(range(1, result.messages + 1, step))
    Random(seed).shuffle(places)
    for at in places:
        for side in SIDES:
            if until is not None and time.monotonic() > until:
                break
            _, has_killed, problems = _one(server, scenario, at, side)
            result.kills += has_killed
            violations += [f"killed at message {at}, {side}: {text}" for text in problems]
    result.violations = tuple(violations)
    sys.stdout.write(
        f"  {scenario.title}: {result.messages} messages, {result.kills} kills,"
        f" {len(violations)} violations\n"
    )
    sys.stdout.flush()
    return result


def _one(
    server: TestServer, scenario: Scenario, at: int | None, side: Side
) -> tuple[int, bool, list[str]]:
    """Run a program to its end, killed once on the way; return what is wrong then."""
    template = server.template(*SCHEMAS) if scenario.is_installed else "template0"
    names = [server.create(template) for _ in range(2)]
    try:
        source, target = (server.dsn(name) for name in names)
        scenario.prepare(source, target)
        messages, has_killed = _start(scenario, (source, target), at, side)
        if has_killed:
            _start(scenario, (source, target), None, side)
        return messages, has_killed, scenario.check(source, target)
    finally:
        for name in names:
            server.drop(name)


def _start(
    scenario: Scenario, dsns: tuple[str, str], at: int | None, side: Side
) -> tuple[int, bool]:
    place = conninfo_to_dict(dsns[0])
    with ExitStack() as stack:
        socket = f"{place['host']}/.s.PGSQL.{place['port']}"
        proxy = KillingProxy(socket, at, side)
        stack.enter_context(proxy)
        through = [
            make_conninfo("", **{**conninfo_to_dict(dsn), "host": "127.0.0.1", "port": proxy.port})
            for dsn in dsns
        ]
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "proof.crashes.programs", scenario.name],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        )
        proxy.pid = process.pid
        try:
            _, errors = process.communicate(json.dumps(through).encode(), PROGRAM_SECONDS)
        except BaseException:
            process.kill()
            raise
        if process.returncode != 0 and not proxy.has_killed:
            raise RuntimeError(f"{scenario.name} failed: {errors.decode()[-2000:]}")
        return proxy.messages, proxy.has_killed
