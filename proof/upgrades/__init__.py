"""Upgrades from former versions: of every version's data, and under load.

Each former version of the schemas is installed by its own code, and fills queues with messages in
every state. This version upgrades them. Then the catalogue must be the one that a fresh
installation has, and every message must be where it was.

For the second part clients and a worker of a former version use many queues while this version
upgrades the schemas, then beside clients and a worker of this version, until they are stopped.
Every message must be handled once; the longest call of a client is the stall.

Words after `--`: `--queues=N` for the load, and `--load=COMMIT,...` for the versions under load.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import psycopg

from postroad.bus import Bus, Lease
from postroad.cli.components import SCHEMAS
from postroad.postgres import status
from postroad.testing import TestServer, wait_until
from proof.interleavings import running_server
from proof.options import Options
from proof.report import Report, Table
from proof.upgrades.versions import PROGRAM, Version, current, former, run_program
from tests.migration.catalogue import catalogue

__all__ = ["Load", "check_data", "check_load", "differences", "misplaced", "run"]

QUICK_VERSIONS = 4
QUICK_QUEUES, FULL_QUEUES = 100, 1000
# Queues that the worker consumes, too.
WORKED = 10
PHASE_SECONDS = 3.0
# Iids carry the id of their database.
_NODE = re.compile("@[0-9a-f]{6}")
_LOG_OF_FANOUT = re.compile(r"ql\$[^.]*(\.(token|leased_until))?")
_RIGHTS = re.compile(r"\{([^{}]*=[^{}]*)\}$", re.MULTILINE)


@dataclass(frozen=True)
class Load:
    """What clients saw of an upgrade under load."""

    version: Version
    upgrade_seconds: float
    # It met transactions that kept it from its locks, and was repeated without clients.
    is_refused: bool
    calls: int
    longest_before: float
    longest_during: float
    messages: int
    deadlocks: int
    violations: tuple[str, ...]


def run(options: Options) -> Report:
    """Upgrade the data of former versions, then three of them under load."""
    violations: list[str] = []
    given = dict(word.removeprefix("--").split("=") for word in options.arguments)
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        versions = former(Path(folder))
        chosen = versions if options.is_full else _spread(versions, QUICK_VERSIONS)
        for version in chosen:
            found = check_data(server, version)
            violations += [f"data of {version.commit}: {text}" for text in found]
            _say(f"data of {version.commit}: {len(found)} violations")
        queues = int(given.get("queues") or (FULL_QUEUES if options.is_full else QUICK_QUEUES))
        loaded = given["load"].split(",") if "load" in given else ()
        under_load = [each for each in versions if each.commit in loaded] or _spread(versions, 3)
        loads = [check_load(server, version, queues) for version in under_load]
    rows = tuple(_row(load) for load in loads)
    violations += [
        f"load of {one.version.commit}: {text}" for one in loads for text in one.violations
    ]
    longest = max(load.longest_during for load in loads)
    limits = () if options.is_full else (f"Quick run: {len(chosen)} of {len(versions)} versions.",)
    return Report(
        title="Upgrades",
        introduction=__doc__.partition("\n\n")[2].partition("\n\nWords")[0],
        facts=(
            ("former versions", f"{len(chosen)} of {len(versions)}"),
            ("queues under load", str(queues)),
            ("longest call during an upgrade", f"{longest:.2f} s"),
        ),
        tables=(
            Table(
                "Under load",
                (
                    *("from", "migrations", "upgrade took", "calls"),
                    *(
                        "longest call before",
                        "during and after",
                        "messages",
                        "deadlocks",
                        "violations",
                    ),
                ),
                rows,
            ),
        ),
        violations=tuple(violations),
        limits=(
            *limits,
            "An upgrade that was refused changed nothing; it was repeated without the clients.",
            "Versions are those between releases, because there has been no release yet.",
            "Migrations before 0021 of the bus change how messages are stored and hold tables which"
            " every call reads until the upgrade ends; calls that meet one wait for so long, and in"
            " a deadlock with it one is rolled back and repeated. Later ones add columns in a short"
            " transaction before it.",
        ),
    )


def check_data(server: TestServer, version: Version) -> list[str]:
    """Upgrade what a former version left; return what is wrong then."""
    with _database(server) as upgraded, _database(server) as fresh:
        version.install(upgraded)
        held = json.loads(run_program(version, "fill", upgraded))
        current().install(upgraded, "upgrade")
        current().install(fresh)
        run_program(current(), "fill", fresh)
        return [*differences(upgraded, fresh), *misplaced(upgraded, held)]


def check_load(server: TestServer, version: Version, queues: int) -> Load:
    """Upgrade under load, and let both versions work side by side."""
    new = current()
    with _database(server) as dsn:
        version.install(dsn)
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("create table done (n bigint)")
        run_program(version, "queues", dsn, str(queues))
        with ExitStack() as stack:

            def running(which: Version, *words: str) -> subprocess.Popen[str]:
                return stack.enter_context(_running(which, words[0], dsn, *words[1:]))

            results: list[dict[str, Any]] = []
            violations: list[str] = []
            workers = [running(version, "work", str(WORKED))]
            clients = [running(version, "traffic", str(queues), "0")]
            time.sleep(PHASE_SECONDS)
            began = time.monotonic()
            try:
                new.install(dsn, "upgrade")
                is_refused = False
            except RuntimeError as refused:
                if "in use by transactions" not in str(refused):
                    raise
                is_refused = True
            upgraded = time.monotonic()
            if is_refused:
                results.append(_end(clients.pop()))
                violations = _end_workers(workers.pop())
                new.install(dsn, "upgrade")
            workers.append(running(new, "work", str(WORKED)))
            clients.append(running(new, "traffic", str(queues), str(10**9)))
            time.sleep(PHASE_SECONDS)
            results += [_end(each) for each in clients]
            violations += _end_workers(*workers)
        left = _drain(dsn, queues)
        with psycopg.connect(dsn) as session:
            done = [number for (number,) in session.execute("select n from done")] + left
    posted = {number for result in results for number in result["posted"]}
    violations += [f"error of a client: {text}" for one in results for text in one["errors"]]
    violations += [f"lost: {number}" for number in sorted(posted - set(done))]
    # A post whose answer was an error may have been done.
    if len(done) != len(set(done)):
        violations.append(f"handled twice: {len(done) - len(set(done))} messages")
    calls = [call for result in results for call in result["calls"]]
    load = Load(
        version,
        upgraded - began,
        is_refused,
        len(calls),
        max(took for start, took in calls if start + took < began),
        max((took for start, took in calls if start + took >= began), default=0.0),
        len(done),
        sum(result["deadlocks"] for result in results),
        tuple(violations[:20]),
    )
    _say(f"load of {version.commit}: {len(violations)} violations")
    return load


def differences(upgraded: str, fresh: str) -> list[str]:
    """Compare the catalogues.

    Functions that former versions call stay until a release contracts them. The log of a fanout
    queue has the columns and free space of leases only where it was the table of a direct queue;
    none uses them.
    """
    found = []
    with psycopg.connect(upgraded) as one, psycopg.connect(fresh) as other:
        for schema in SCHEMAS:
            if not status(one, schema).is_current:
                found.append(f"schema {schema.name} is not current")
            there, wanted = (_facts(each, schema.name) for each in (one, other))
            for (kind, name), text in wanted.items():
                if (got := there.get((kind, name))) is None:
                    found.append(f"{schema.name}: {kind} {name} lacks")
                elif got != text:
                    lines = unified_diff(text.splitlines(), got.splitlines(), lineterm="", n=0)
                    found.append(f"{schema.name}: {kind} {name} differs: {list(lines)[3:5]}")
            found += [
                f"{schema.name}: {kind} {name} is left"
                for kind, name in there.keys() - wanted.keys()
                if kind != "function"
            ]
    return found


def _facts(connection: psycopg.Connection, schema: str) -> dict[tuple[str, str], str]:
    database = connection.info.dbname
    return {
        (kind, name): _RIGHTS.sub(
            lambda rights: ",".join(sorted(rights[1].split(","))),
            _NODE.sub("@node", text).replace(database, "database"),
        )
        for kind, name, text in catalogue(connection, schema)
        if not (kind in ("column", "relation") and _LOG_OF_FANOUT.fullmatch(name))
    }


def misplaced(dsn: str, held: list[list[Any]]) -> list[str]:
    """Consume what `fill` has posted; return what is not where it was."""
    found: list[str] = []

    def expect(what: str, got: object, wanted: object) -> None:
        if got != wanted:
            found.append(f"{what}: {got} instead of {wanted}")

    def taken(queue: str, consumer: str = "default") -> list[Any]:
        return [message.data for message in bus.consume(queue, consumer, amount=100)]

    with Bus(dsn) as bus:
        bus.maintain()
        expect("message after another", taken("after"), [])
        expect("messages", taken("plain"), list(range(10)))
        wait_until(lambda: _maintained(bus, "after"), what="the message after another")
        expect("message after another", taken("after"), [0])
        expect("fan-out", taken("fan"), [str(number) for number in range(6)])
        expect("selector", taken("fan", "even"), ["0", "2", "4"])
        got = list(itertools.chain.from_iterable(taken("grouped") for _ in range(3)))
        for group in (0, 1):
            expect("group", [n for n in got if n % 2 == group], list(range(group, 6, 2)))
        expect("lost leases", bus.ack_many([Lease(iid, token) for iid, token in held]), [])
        expect("not leased", taken("leased"), [2, 3])
        expect("redriven", bus.redrive("dead"), 2)
        expect("dead", sorted(taken("dead")), [0, 1])
        bus.post("once", 1, headers={"dedup_key": "k", "dedup_window": "1 hour"})
        expect("deduplicated", taken("once"), [0])
        wait_until(lambda: _maintained(bus, "late"), what="the delayed message")
        expect("delayed", taken("late"), [0])
    return found


def _maintained(bus: Bus, queue: str) -> bool:
    bus.maintain()
    return any(each.queue == queue and each.ready for each in bus.status())


@contextmanager
def _database(server: TestServer) -> Iterator[str]:
    name = server.create("template0")
    try:
        yield server.dsn(name)
    finally:
        server.drop(name)


@contextmanager
def _running(version: Version, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), *words],
        env=version.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # The first line says that it has begun.
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError(
                f"{words[0]} of {version.commit}: {process.communicate()[1][-2000:]}"
            )
        yield process
    finally:
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[str]) -> dict[str, Any]:
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    if process.returncode != 0:
        raise RuntimeError(f"clients ended with {process.returncode}: {errors[-2000:]}")
    result: dict[str, Any] = json.loads(output)
    return result


def _end_workers(*workers: subprocess.Popen[str]) -> list[str]:
    violations = []
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=60)
        if worker.returncode != 0:
            violations.append(f"a worker ended with {worker.returncode}: {errors[-500:]}")
    return violations


def _drain(dsn: str, queues: int) -> list[int]:
    with Bus(dsn) as bus:
        names = [f"q{number}" for number in range(queues)]
        left = []
        for name in names:
            while messages := bus.consume(name, amount=1000):
                left += [message.data for message in messages]
    return left


def _spread(versions: list[Version], count: int) -> list[Version]:
    """Return so many versions, evenly spread, with the oldest and the newest."""
    last = len(versions) - 1
    return [versions[round(number * last / (count - 1))] for number in range(count)]


def _row(load: Load) -> tuple[str, ...]:
    return (
        load.version.commit,
        str(len(current().migrations - load.version.migrations)),
        f"{load.upgrade_seconds:.1f} s" + (", refused" if load.is_refused else ""),
        f"{load.calls:,}",
        f"{load.longest_before * 1000:.0f} ms",
        f"{load.longest_during * 1000:.0f} ms",
        f"{load.messages:,}",
        str(load.deadlocks),
        str(len(load.violations)),
    )


def _say(line: str) -> None:
    sys.stdout.write(f"  {line}\n")
    sys.stdout.flush()
