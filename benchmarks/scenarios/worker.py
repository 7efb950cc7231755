"""AsyncWorker with an empty handler, beside procrastinate and pgqueuer."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from benchmarks.lab import Lab
from benchmarks.peers.install import installed_peers
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands

ROUNDS = 3
OUR_MESSAGES = 100_000
# Enough for several seconds each.
PROCRASTINATE_JOBS = 3_000
PGQUEUER_JOBS = 40_000
LEASE_PREFETCH = 100
# Of 1, 10, 20, 50 and of 10, 100, 300, 1000. They were tried on a busy machine, where no setting
# was fastest each time: try again on a quiet one before quoting the ratio.
PROCRASTINATE_CONCURRENCY = 50
PGQUEUER_BATCH = 300


def run(lab: Lab) -> Findings:
    """Preload and drain each, one process with one event loop at a time."""
    lab.report("installing the peers")
    peers = installed_peers(lab.root)
    ours = lab.scaled(OUR_MESSAGES, 1000)
    numbers = itertools.count(1)

    def drain(mode: str, prefetch: int | None = None, concurrency: int = 1) -> float:
        queue = f"work{next(numbers)}"
        arguments = [lab.dsn, queue, str(ours), str(prefetch or 0), mode, str(concurrency)]
        return _drain(lab, "drain_postroad", arguments, None)

    def procrastinate() -> float:
        arguments = [
            lab.dsn,
            str(lab.scaled(PROCRASTINATE_JOBS, 200)),
            str(PROCRASTINATE_CONCURRENCY),
        ]
        return _drain(lab, "drain_procrastinate", arguments, peers)

    def pgqueuer() -> float:
        arguments = [
            _as_address(lab.dsn),
            str(lab.scaled(PGQUEUER_JOBS, 2000)),
            str(PGQUEUER_BATCH),
        ]
        return _drain(lab, "drain_pgqueuer", arguments, peers)

    rates = interleave(
        lab,
        ROUNDS,
        {
            "procrastinate": procrastinate,
            "AsyncWorker": lambda: drain("transaction"),
            "pgqueuer": pgqueuer,
            "AsyncWorker, concurrency 2": lambda: drain("transaction", concurrency=2),
            "AsyncWorker, leases": lambda: drain("lease", LEASE_PREFETCH),
        },
    )
    figures = [
        Figure(
            f"AsyncWorker, empty handler, beside {peer}",
            thousands(median(rates, "AsyncWorker")),
            f"{peer} {thousands(median(rates, peer))}",
            ratio(rates, "AsyncWorker", peer),
            "x",
            at_least(5),
        )
        for peer in ("procrastinate", "pgqueuer")
    ]
    figures += [
        Figure(
            f"the same, {kind}",
            thousands(median(rates, f"AsyncWorker, {kind}")),
            f"{peer} {thousands(median(rates, peer))}",
            ratio(rates, f"AsyncWorker, {kind}", peer),
            "x",
        )
        for kind in ("concurrency 2", "leases")
        for peer in ("pgqueuer",)
    ]
    return Findings(figures, {"rates": rates})


def _drain(lab: Lab, module: str, arguments: list[str], peers: Path | None) -> float:
    lab.checkpoint()
    path = os.pathsep.join(map(str, filter(None, (peers, lab.root / "src", lab.root))))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peers.{module}", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=lab.root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.split()[-1])


def _as_address(dsn: str) -> str:
    """Write a DSN as an address, the form that asyncpg reads."""
    where = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    return (
        f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}&port={where['port']}"
    )


SCENARIO = Scenario(
    "worker",
    "Workers in Python",
    "One process and one event loop each, 3 rounds: 100,000 messages, 3,000 jobs of procrastinate "
    "or 40,000 of pgqueuer, of 200 bytes each, posted first, then drained by an empty handler "
    "until nothing is left. AsyncWorker in transaction mode with its defaults: one connection, up "
    "to 300 messages a transaction (also with two connections, and in lease mode with prefetch "
    "100); procrastinate on psycopg with concurrency 50, deleting finished "
    "jobs; pgqueuer on asyncpg and uvloop with batches of 300. Neither peer is tuned further.",
    ROUNDS * 5 + 1,
    run,
)
