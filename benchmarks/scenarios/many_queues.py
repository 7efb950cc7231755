"""A thousand queues with two consumers each: making them, and their idle maintenance."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_most

QUEUES = 1_000
IDLE_SECONDS = 30
CALLS_PER_SECOND = 2
# Time for the first looks at new queues, which find them empty and leave them alone from then on.
SETTLE_SECONDS = 3


def run(lab: Lab) -> Findings:
    """Create the queues, then watch one session that maintains them."""
    queues = lab.scaled(QUEUES, 20)
    lab.report(f"creating {queues:,} queues")
    began = time.monotonic()
    for number in range(queues):
        lab.execute(f"select mbus.create_queue('many{number}')")
        lab.execute(f"select mbus.create_consumer('many{number}', 'billing')")
    created_seconds = time.monotonic() - began
    relations = lab.number(
        "select count(*) from pg_class where relnamespace = 'mbus'::regnamespace"
        " and relname ~ '(^|[^a-z0-9])many7([^0-9]|$)'"
    )
    lab.report("idle maintenance")
    seconds = lab.scaled(IDLE_SECONDS, 5)
    with psycopg.connect(lab.dsn, autocommit=True, prepare_threshold=0) as connection:
        pid = connection.info.backend_pid
        _maintain(connection, SETTLE_SECONDS)
        before = _cpu_seconds(pid)
        longest = _maintain(connection, seconds)
        used = _cpu_seconds(pid) - before
    share = 100 * used / seconds
    return Findings(
        [
            Figure(
                f"{queues:,} queues with two consumers each: created in",
                f"{created_seconds:.1f} s, {relations:.0f} relations each",
                "",
                created_seconds,
                " s",
                at_most(180 * queues / QUEUES),
            ),
            Figure(
                f"idle maintenance of {queues:,} queues: part of a core",
                f"{share:.2f} %, longest call {longest * 1000:.0f} ms",
                "",
                share,
                " %",
                at_most(5),
            ),
        ],
        {"created_seconds": created_seconds, "core_percent": share, "longest_call": longest},
    )


def _maintain(connection: psycopg.Connection[tuple[object, ...]], seconds: float) -> float:
    """Call maintenance at its usual pace; return the longest call in seconds."""
    longest = 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        connection.execute("select * from mbus.maintain()").fetchall()
        took = time.monotonic() - began
        longest = max(longest, took)
        time.sleep(max(0.0, 1 / CALLS_PER_SECOND - took))
    return longest


def _cpu_seconds(pid: int) -> float:
    """Return what a backend has used, in user and system mode, by the kernel's account."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SCENARIO = Scenario(
    "many_queues",
    "A thousand queues",
    "One session creates them, each in a separate transaction, with a second consumer. Then a "
    "session calls mbus.maintain() twice a second for 30 s; CPU time of its backend from /proc. "
    "Another session runs maintenance at the same time, as in all these measurements.",
    2,
    run,
)
