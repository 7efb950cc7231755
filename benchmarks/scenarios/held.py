"""What leases, delays, retries, deduplication and Celery cost while a snapshot is held for long."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from psycopg.conninfo import make_conninfo

from benchmarks.harness.meters import cpu_seconds_of
from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.scenarios.celery_brokers import address_of
from benchmarks.scenarios.snapshot import held_snapshot

SECONDS = 600
WINDOW_SECONDS = 60.0
KINDS = ("lease", "delay", "retry", "dedup", "celery")
WARM_WINDOWS, WARM_SECONDS = 1, 5.0
# Workers start before the first window: the first minute is what the others are compared with.
START_SECONDS = 20.0
BYTES = (
    "select coalesce(sum(pg_table_size(c.oid)), 0) from pg_class c"
    " where c.relkind = 'r' and c.relnamespace = 'mbus'::regnamespace"
)
DEAD = (
    "select coalesce(sum(n_dead_tup), 0) from pg_stat_all_tables"
    " where schemaname in ('mbus', 'broker')"
)
# The sessions of each kind belong to a role of their own.
ROLE = "create role held_{0} superuser login password '{0}'"
SESSIONS = (
    "select pid, replace(usename, 'held_', '') from pg_stat_activity"
    " where datname = current_database() and backend_type = 'client backend'"
)


def run(lab: Lab) -> Findings:
    """Carry all kinds of load at the same time, under one snapshot."""
    windows = max(4, round(SECONDS * lab.scale / WINDOW_SECONDS))
    window_seconds = SECONDS * lab.scale / windows
    for kind in KINDS:
        lab.execute(ROLE.format(kind))
    for kind in KINDS[:-1]:
        lab.execute(f"select mbus.create_queue('held_{kind}', payload => 'text')")
    lab.report("warm-up")
    _finish(_start(lab, WARM_WINDOWS, WARM_SECONDS, time.time() + START_SECONDS))
    lab.report(f"{windows} windows of {window_seconds:.0f} s under one snapshot")
    with held_snapshot(lab.dsn):
        began = time.time() + START_SECONDS
        loads = _start(lab, windows, window_seconds, began)
        samples = _sample(lab, windows, window_seconds, began)
        found = _finish(loads)
    figures = [figure for kind in KINDS for figure in _figures(kind, found[kind], samples)]
    first, last = samples["bytes"][0], max(samples["bytes"])
    figures.append(
        Figure(
            "the same, size of all tables of the bus: largest beside the first minute",
            f"{last / 1e6:.1f} MB",
            f"{first / 1e6:.1f} MB; dead rows at most {max(samples['dead']):,.0f}, "
            f"in the first half {max(samples['dead'][: windows // 2]):,.0f}",
        )
    )
    return Findings(figures, {"seconds": window_seconds, "kinds": found, **samples})


def _start(
    lab: Lab, windows: int, seconds: float, began: float
) -> dict[str, subprocess.Popen[str]]:
    loads = {}
    for kind in KINDS:
        environment = {**os.environ, "PYTHONPATH": f"{lab.root / 'src'}{os.pathsep}{lab.root}"}
        dsn = make_conninfo(lab.dsn, user=f"held_{kind}", password=kind)
        arguments = [str(windows), str(seconds), str(began)]
        if kind == "celery":
            module = "benchmarks.peers.run_held_celery"
            environment["BENCHMARK_BROKER"] = f"mbus{address_of(dsn)}"
            # What the killed worker of the warm-up has not acked is not of this run.
            environment["BENCHMARK_QUEUE"] = f"held_celery_{windows}"
        else:
            module = "benchmarks.peers.run_held"
            arguments = [kind, dsn, *arguments]
        loads[kind] = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            env=environment,
            cwd=lab.root,
            stdout=subprocess.PIPE,
            text=True,
        )
    return loads


def _finish(loads: dict[str, subprocess.Popen[str]]) -> dict[str, Any]:
    found = {}
    for kind, load in loads.items():
        answer, _ = load.communicate()
        if load.returncode != 0:
            raise RuntimeError(f"the load of kind {kind} ended with {load.returncode}")
        found[kind] = json.loads(answer.splitlines()[-1])
    return found


def _sample(lab: Lab, windows: int, seconds: float, began: float) -> dict[str, Any]:
    """Read at the end of each window what the sessions of each kind have used, and sizes."""
    time.sleep(max(0.0, began - time.time()))
    started = lab.connection.execute(SESSIONS.encode()).fetchall()
    used = {pid: cpu_seconds_of(pid) for pid, _ in started}
    cpu: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "maintenance")}
    sizes: dict[str, list[float]] = {"bytes": [], "dead": []}
    own = {lab.connection.info.backend_pid}
    for window in range(windows):
        spent = dict.fromkeys(cpu, 0.0)
        # Often, because the time of a session that has ended cannot be read any more.
        while time.time() < began + (window + 1) * seconds:
            time.sleep(min(1.0, seconds / 4))
            for pid, name in lab.connection.execute(SESSIONS.encode()).fetchall():
                if pid in own:
                    continue
                kind = "maintenance" if pid == lab.maintainer.backend_pid else name
                if kind not in cpu:
                    continue
                now = cpu_seconds_of(pid)
                spent[kind] += max(0.0, now - used.get(pid, 0.0))
                used[pid] = max(now, used.get(pid, 0.0))
        for kind, seconds_spent in spent.items():
            cpu[kind].append(seconds_spent)
        sizes["bytes"].append(lab.number(BYTES))
        sizes["dead"].append(lab.number(DEAD))
    return {"cpu_seconds": cpu, **sizes}


def _figures(kind: str, found: dict[str, Any], samples: dict[str, Any]) -> list[Figure]:
    windows = found["windows"]
    cost = [
        1000 * cpu / max(1, window["messages"])
        for cpu, window in zip(samples["cpu_seconds"][kind], windows, strict=True)
    ]
    late = [window["p99_ms"] for window in windows]
    tail = -(-len(windows) // 4)
    figures = [
        _growth(f"{kind}, p99 latency", late, tail, "{:.1f} ms", 2.0),
        _growth(f"{kind}, server time per message", cost, tail, "{:.3f} ms", 1.3),
    ]
    is_complete = found["posted"] == found["handled"] and not found["is_twice"]
    figures.append(
        Figure(
            f"the same, {kind}: nothing lost, nothing twice",
            f"{found['posted']:,} posted, {found['handled']:,} handled",
            "",
            float(is_complete),
            "",
            at_least(1),
        )
    )
    return figures


def _growth(what: str, values: list[float], tail: int, form: str, bar: float) -> Figure:
    last = statistics.median(values[-tail:])
    return Figure(
        f"snapshot held, {what}: the last quarter beside the first minute",
        form.format(last),
        f"{form.format(values[0])}; highest {form.format(max(values))}",
        last / max(values[0], 0.001),
        "x",
        at_most(bar),
    )


SCENARIO = Scenario(
    "held",
    "A snapshot held for minutes",
    "Five loads at the same time in one database, each a process of its own beside its worker: "
    "200 leased messages a second, 100 delayed by 2 s, 50 that are retried once after 1 s, 100 "
    "posts with deduplication keys of which every second one is new, 20 Celery tasks. One snapshot "
    "is held from the first to the last minute. Server time is that of the sessions of each kind, "
    "without maintenance; latency is from the moment a message was due to its handler. `SCALE=6` "
    "holds the snapshot for an hour; `make stress` runs the ten minutes and fails when a bar is "
    "missed.",
    2,
    run,
)
