"""Clients at work on a cluster while its servers, its network and the clients themselves fail.

Posters, workers in both modes, lease clients and sagas reach PostgreSQL x 3 under Patroni by three
routes: directly, by HAProxy through a proxy that cuts connections, and by PgBouncer. Bridges carry
a queue to RabbitMQ x 3 and from there to another database. Each client records its calls in a file
before it makes them, and their answers. A seeded schedule hits them with faults; then everything is
healed, the queues are drained, and the checkers of `proof.history` compare what was acknowledged
with what was done.

Words after `--`: `--schedule=FILE` plays a script instead of the schedule of the seed,
`--asynchronous` or `--synchronous` makes only one of the two runs, `--rate=N` posts N messages a
second, and names of kinds choose these alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from proof.cluster import Cluster
from proof.cluster.network import run as run_command
from proof.cluster.processes import wait_for
from proof.faults.driver import Driver
from proof.faults.judge import Verdict, count_kinds, judge, store_effects
from proof.faults.kinds import KINDS, LANES, Kind
from proof.faults.schedule import Entry, generate, load, save
from proof.faults.workload import arriving, create, dead, imports, unfinished
from proof.history.record import History
from proof.options import Options
from proof.report import Report, Table

__all__ = ["run"]

# Time under faults: synchronous, and asynchronous replication.
QUICK_SECONDS = (180.0, 60.0)
FULL_SECONDS = (2700.0, 600.0)
DRAIN_SECONDS = 300.0
RATE = 1000.0


@dataclass(frozen=True)
class _Plan:
    is_synchronous: bool
    seconds: float
    seed: int
    rate: float
    folder: Path
    script: list[Entry] | None
    chosen: frozenset[str]


def run(options: Options) -> Report:
    """Run with synchronous and with asynchronous replication, and report both."""
    words = set(options.arguments)
    scripts = [word.partition("=")[2] for word in words if word.startswith("--schedule=")]
    rates = [float(word.partition("=")[2]) for word in words if word.startswith("--rate=")]
    chosen = frozenset(word for word in words if not word.startswith("--"))
    if unknown := chosen - KINDS.keys():
        raise ValueError(f"no such faults: {', '.join(sorted(unknown))}")
    verdicts: list[Verdict] = []
    skipped: dict[str, str] = {}
    for is_synchronous, usual in zip(
        (True, False), FULL_SECONDS if options.is_full else QUICK_SECONDS, strict=True
    ):
        mode = "synchronous" if is_synchronous else "asynchronous"
        if words & {"--synchronous", "--asynchronous"} and f"--{mode}" not in words:
            continue
        folder = options.scratch / "faults" / mode
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plan = _Plan(
            is_synchronous,
            # Bounded: the asynchronous run gets a quarter of the time.
            usual if options.seconds is None else options.seconds / (1 if is_synchronous else 4),
            options.seed,
            rates[0] if rates else RATE,
            folder,
            load(Path(scripts[0])) if scripts else None,
            chosen,
        )
        verdict, left_out = _one_run(plan)
        verdicts.append(verdict)
        skipped |= left_out
    return _report(verdicts, skipped)


def _one_run(plan: _Plan) -> tuple[Verdict, dict[str, str]]:
    cluster = Cluster.start(
        Path(f"/tmp/postroad-faults-{time.time_ns()}"),
        is_synchronous=plan.is_synchronous,
    )
    try:
        kinds, left_out = _possible(cluster)
        with Driver.running(cluster, plan.folder, plan.seed, plan.rate) as driver:
            create(cluster.dsn("direct"), driver.brokers())
            driver.start_clients()
            _play(driver, plan, kinds)
            save(plan.folder / "schedule.json", driver.played)
            _drain(driver)
            store_effects(cluster.dsn("direct"), driver.recorder)
            store_effects(imports(cluster.dsn("direct")), driver.recorder)
            driver.record_promotions()
            violations = [*driver.problems, *driver.ended]
            repairs = driver.copied, driver.restarted
    except BaseException as failure:
        failure.add_note(cluster.log_ends())
        raise
    finally:
        for process in cluster.processes.values():
            shutil.copy(process.log, plan.folder / f"{process.name}.log")
        cluster.stop()
    verdict = judge(
        History.read(plan.folder / "history"),
        is_synchronous=plan.is_synchronous,
        has_bridges=True,
    )
    verdict.violations += violations
    verdict.repairs = repairs
    return verdict, left_out


def _possible(cluster: Cluster) -> tuple[list[Kind], dict[str, str]]:
    """Return the kinds that this machine permits, and why not the others."""
    network = cluster.plan.network
    left_out = {}
    if not network.has_namespaces:
        left_out = {
            name: "needs network namespaces"
            for name, kind in KINDS.items()
            if kind.needs_namespaces
        }
    else:
        probe = ["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "1ms"]
        inside = network.inside("front")
        done = subprocess.run([*inside, *probe], capture_output=True, text=True, check=False)
        if done.returncode:
            left_out["delay_packets"] = f"tc: {done.stderr.strip()}"
        else:
            run_command(*inside, "tc", "qdisc", "del", "dev", "eth0", "root")
    return [kind for name, kind in KINDS.items() if name not in left_out], left_out


def _play(driver: Driver, plan: _Plan, kinds: list[Kind]) -> None:
    """Play the faults of all lanes beside each other until the time is over."""
    wanted = [kind for kind in kinds if not plan.chosen or kind.name in plan.chosen]
    is_over = threading.Event()
    lanes = []
    for number, name in enumerate(LANES):
        these = [kind for kind in wanted if kind.lane == name]
        entries: Iterable[Entry] = generate(plan.seed + number, these) if these else ()
        if plan.script is not None:
            entries = [each for each in plan.script if KINDS[each.kind].lane == name]
        lanes.append(threading.Thread(target=_guarded, args=(driver, entries, is_over)))
    for lane in lanes:
        lane.start()
    deadline = time.monotonic() + plan.seconds
    try:
        while time.monotonic() < deadline and (alive := [one for one in lanes if one.is_alive()]):
            alive[0].join(1.0)
    finally:
        # Also when interrupted: a lane that heals later would start a client that nobody ends.
        is_over.set()
        for lane in lanes:
            lane.join()


def _guarded(driver: Driver, entries: Iterable[Entry], is_over: threading.Event) -> None:
    """Play; a defect of the driver ends the run and is reported, not hidden by a thread's end."""
    try:
        driver.play(entries, is_over)
    except Exception as failure:
        is_over.set()
        driver.problems.append(f"the driver failed: {failure!r}")
        raise


def _drain(driver: Driver) -> None:
    """Heal what is left, let posters finish, and wait until there is nothing more to do."""
    driver.proxy.arm(None)
    driver.restart_services()
    try:
        driver.cluster.wait_ready()
        driver.recover_brokers()
    except TimeoutError as failure:
        driver.problems.append(str(failure))
    driver.check_clients()
    driver.stop_clients("poster", 120)
    with psycopg.connect(driver.cluster.dsn("direct"), autocommit=True) as connection:

        def is_drained() -> bool:
            driver.check_clients_of(("worker", "leaser", "carrier"))
            # In the order in which messages cross, so that none is missed.
            return not (
                unfinished(connection)
                or driver.cluster.rabbit_messages()
                or arriving(driver.cluster.dsn("direct"))
            )

        try:
            wait_for(is_drained, "empty queues", DRAIN_SECONDS)
        except TimeoutError:
            driver.problems.append(f"not drained: {unfinished(connection)}")
        driver.problems += [f"dead: {text}" for text in dead(connection)[:10]]
    for role in ("leaser", "carrier", "worker"):
        driver.stop_clients(role, 60)


def _report(verdicts: list[Verdict], skipped: dict[str, str]) -> Report:
    facts: list[tuple[str, str]] = []
    tables = []
    violations = []
    for verdict in verdicts:
        kinds = count_kinds(verdict.faults)
        facts += [
            (f"{verdict.mode}: operations", f"{verdict.operations:,}"),
            (f"{verdict.mode}: faults", f"{sum(kinds.values()):,} of {len(kinds)} kinds"),
            (f"{verdict.mode}: calls without an answer", f"{verdict.unanswered:,}"),
            (f"{verdict.mode}: acknowledged and lost", f"{len(verdict.lost):,}"),
            (f"{verdict.mode}: longest unavailability", f"{verdict.longest_gap:.1f} s"),
            (f"{verdict.mode}: standbys copied again by hand", str(verdict.repairs[0])),
            (f"{verdict.mode}: RabbitMQ nodes restarted by hand", str(verdict.repairs[1])),
        ]
        tables += [
            Table(
                f"Faults, {verdict.mode} replication",
                ("kind", "meaning", "times", "longest time without an acknowledged post"),
                tuple(
                    (name, KINDS[name].meaning, str(count), f"{verdict.gaps.get(name, 0):.1f} s")
                    for name, count in sorted(kinds.items(), key=lambda each: -each[1])
                ),
            ),
            Table(
                f"Promises, {verdict.mode} replication",
                ("promise", "judged", "acknowledged and lost", "violations"),
                tuple(
                    (
                        finding.promise,
                        f"{finding.checked:,}",
                        f"{len(finding.lost):,}",
                        str(len(finding.violations)),
                    )
                    for finding in verdict.findings
                ),
            ),
        ]
        violations += [f"{verdict.mode}: {text}" for text in verdict.violations]
    sys.stdout.flush()
    return Report(
        title="Faults",
        introduction=(
            "PostgreSQL x 3 under Patroni and etcd, each node in its own network namespace, with"
            " HAProxy and PgBouncer in front, and RabbitMQ x 3 with quorum queues. Three posters,"
            " three workers and two lease clients work by three routes, and bridges carry a queue"
            " to RabbitMQ and from there to another database, while the faults below are done to"
            " servers, network and clients. An operation is one message: posted and acknowledged,"
            " handled, leased, acked. With synchronous replication nothing that was acknowledged"
            " may be lost; with asynchronous replication only what was acknowledged shortly before"
            " or during a failover. Times without an acknowledged post overlap: a light fault"
            " during a failover shows the time of the failover. Standbys copied again and RabbitMQ"
            " nodes restarted by hand are those that had not come back 45 s after a"
            " fault was healed, such as a node that paused in a minority and did not resume; the"
            " driver did what an operator does then."
        ),
        facts=tuple(facts),
        tables=tuple(tables),
        violations=tuple(violations),
        limits=(
            "All nodes share the processors, the memory and the clock of one machine.",
            "The data folders are file systems in memory: a loss of power is not part of this.",
            *(f"Left out on this machine: {name} ({why})." for name, why in skipped.items()),
        ),
    )
