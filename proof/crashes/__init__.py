"""Components killed with SIGKILL at every message that they send to the database.

A run without a kill counts the messages. Then, for each of them (a spread of them in a quick run),
the program starts in a new database and is killed at it: once before the message reaches the
server, once after the server has answered and before the program knows. It is started again, ends
its work, and the rows show what was done. The exchange has a table of its own, by system calls:
docs/operate/exchange-crash-table.md.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer
from proof.crashes.programs import run_program
from proof.crashes.proxy import KillingProxy
from proof.crashes.scenarios import SCENARIOS, Scenario, closing_servers
from proof.crashes.work import Place
from proof.faults.proxy import Side
from proof.interleavings import running_server
from proof.options import Options
from proof.report import Report, Table

__all__ = ["SCENARIOS", "Scenario", "explore", "run"]

QUICK_POINTS = 8
# Divided among the programs; those that end early leave their time to others.
QUICK_SECONDS = 180.0
PROGRAM_SECONDS = 180.0
SIDES: tuple[Side, ...] = ("request", "reply")
# Forked from one that has imported everything: a start takes a moment instead of seconds.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["proof.crashes.programs"])


@dataclass
class Result:
    """Kills of one scenario."""

    messages: int
    kills: int = 0
    violations: tuple[str, ...] = ()


def run(options: Options) -> Report:
    """Explore every scenario; words after `--` choose some."""
    names = set(options.arguments)
    chosen = [each for each in SCENARIOS if not names or each.name in names]
    results: dict[str, Result] = {}
    seconds = options.seconds or (math.inf if options.is_full else QUICK_SECONDS)
    points = None if options.is_full else QUICK_POINTS
    deadline = time.monotonic() + seconds
    with running_server() as server, closing_servers():
        for number, scenario in enumerate(chosen):
            share = (deadline - time.monotonic()) / (len(chosen) - number)
            until = time.monotonic() + max(0.0, share)
            results[scenario.name] = explore(server, scenario, points, options.seed, until)
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
    if seconds < math.inf:
        limits.append(f"Ended after {seconds:.0f} s; the order of the kills is random.")
    if not options.is_full:
        limits.append(f"Quick run: at most {QUICK_POINTS} messages of each program, evenly spread.")
    limits.append("The exchange has a table of its own: docs/operate/exchange-crash-table.md.")
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
    until: float = math.inf,
) -> Result:
    """Count the messages of a run; kill at each of them, or at so many of them, in random order.

    After `until` no further kill begins, apart from the first.
    """
    result = Result(_one(server, scenario, None, "request")[0])
    step = 1 if points is None else max(1, result.messages // points)
    violations = []
    places = list(range(1, result.messages + 1, step))
    Random(seed).shuffle(places)
    for at in places:
        for side in SIDES:
            if result.kills and time.monotonic() > until:
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
    names = [server.create(template) for _ in range(scenario.databases)]
    with ExitStack() as stack:
        for name in names:
            stack.callback(server.drop, name)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crash-")))
        # A server in it may run as another user.
        folder.chmod(0o755)
        place = Place(tuple(server.dsn(name) for name in names), folder, stack)
        scenario.prepare(place)
        messages, has_killed = _start(scenario, place, at, side)
        if has_killed:
            _start(scenario, place, None, side)
        return messages, has_killed, scenario.check(place)


def _start(scenario: Scenario, place: Place, at: int | None, side: Side) -> tuple[int, bool]:
    where = conninfo_to_dict(place.dsn)
    with ExitStack() as stack:
        socket = f"{where['host']}/.s.PGSQL.{where['port']}"
        proxy = KillingProxy(socket, at, side)
        stack.enter_context(proxy)
        through = tuple(
            make_conninfo("", **{**conninfo_to_dict(dsn), "host": "127.0.0.1", "port": proxy.port})
            for dsn in place.databases
        )
        log = place.folder / "program.log"
        orders, end = _processes.Pipe()
        process = _processes.Process(
            target=run_program, args=(scenario.name, end, str(log)), daemon=True
        )
        process.start()
        try:
            # It begins when the proxy knows whom to kill.
            proxy.pid = process.pid
            orders.send(place.work(through))
            process.join(PROGRAM_SECONDS)
            if process.exitcode != 0 and not proxy.has_killed:
                raise RuntimeError(
                    f"{scenario.name} ended with {process.exitcode}: {log.read_text()[-2000:]}"
                )
        finally:
            process.kill()
            process.join()
        return proxy.messages, proxy.has_killed
