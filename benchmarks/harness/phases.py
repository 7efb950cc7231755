"""The phases of the public harness around a steady load: pressure, and faults.

Pressure runs one adapter through clean, held snapshot, active readers, and burst. Faults run
producer and worker as two processes with a ledger: the worker is killed, then all server sessions,
then PostgreSQL itself is stopped immediately. What ends is started again, as a supervisor would.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.harness.adapter import EFFECT
from benchmarks.harness.arms import Arm
from benchmarks.harness.cells import Cell
from benchmarks.harness.contract import read_ledger
from benchmarks.harness.driver import (
    START_SECONDS,
    Adapter,
    AdapterFailed,
    Place,
    address_of,
    environment_of,
    fresh_database,
)
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.ledger import Fault, judge
from benchmarks.harness.meters import Meter, dead_rows
from postroad.postgres.postmaster import read_postmaster

__all__ = ["FAULTS", "PRESSURES", "RATE", "run_faults", "run_pressure"]

PRESSURES = ("clean", "held snapshot", "active readers", "burst")
FAULTS = ("kill of the worker", "kill of all sessions", "immediate stop")
RATE = 800
READERS = 4
SCAN_PAUSE_SECONDS = 0.1
BURST_FACTOR = 5
DRAIN_SECONDS = 30.0
# Long enough that leases of a killed worker, 10 s each, have expired.
LEASE_SECONDS = "10"


def run_pressure(place: Place, arm: Arm, cell: Cell, seconds: int) -> dict[str, dict[str, Any]]:
    """Run the pressure phases; return the figures of each. Raises AdapterFailed."""
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(place))
        meter = Meter(place.server.dsn("postgres"), database, place.postmaster)
        stack.callback(meter.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rate_file = folder / "rate"
        rate_file.write_text(str(cell.rate), encoding="ascii")
        environment = {
            **environment_of(cell),
            "PRODUCER_RATE_CONTROL_FILE": str(rate_file),
            "PRODUCER_BATCH_MAX": "1000",
        }
        adapter = Adapter(arm, address_of(place, database), environment)
        stack.callback(adapter.stop)
        adapter.wait_for("descriptor", START_SECONDS)
        adapter.warm_up(2)
        dsn = place.server.dsn(database)
        for name in PRESSURES:
            with _pressure(name, dsn):
                if name == "burst":
                    rate_file.write_text(str(cell.rate * BURST_FACTOR), encoding="ascii")
                found[name] = _observe(adapter, meter, seconds)
            found[name]["dead_rows"] = dead_rows(dsn)
        rate_file.write_text(str(cell.rate), encoding="ascii")
        found["burst"]["drain_seconds"] = _drain(adapter, cell)
    return found


def run_faults(place: Place, arm: Arm, cell: Cell, seconds: int) -> dict[str, Any]:
    """Run the faults; return lost, doubled, restarts, and the outcome of each fault."""
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(place))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arm = replace(arm, environment={**arm.environment, "LEDGER_FOLDER": str(folder)})
        address = address_of(place, database)
        environment = {**environment_of(cell), "POSTROAD_TTL_SECONDS": LEASE_SECONDS}
        producer = _Kept(arm, address, {**environment, "WORKER_COUNT": "0"})
        stack.callback(producer.stop)
        worker = _Kept(
            arm, address, {**environment, "PRODUCER_RATE": "0", "BENCH_INSTANCE_ID": "1"}
        )
        stack.callback(worker.stop)
        # The figures need a steady load before the first fault.
        _pause(3, producer, worker)
        faults = []
        for name in FAULTS:
            at = time.time()
            _inflict(name, place, database, worker)
            over = time.time()
            _pause(seconds, producer, worker)
            faults.append(Fault(name, at, over, time.time()))
        producer.stop()
        handled = _wait_until_drained(place, database, arm, folder, worker)
        worker.stop()
        posted, _ = read_ledger(folder)
    # What was drained after the last fault belongs to it.
    faults[-1] = replace(faults[-1], until=time.time())
    lost, doubled, outcomes = judge(posted, handled, faults, cell.rate)
    return {
        "posted": sum(amount for _, amount, _ in posted),
        "lost": lost,
        "doubled": doubled,
        "restarts": len(producer.restarts) + len(worker.restarts),
        "last_words": [*producer.restarts, *worker.restarts][:3],
        "faults": {each.name: each.facts() for each in outcomes},
    }


class _Kept:
    """An adapter that is started again when it ends, and when it is killed."""

    def __init__(self, arm: Arm, address: str, environment: dict[str, str]) -> None:
        self._start = lambda: Adapter(arm, address, environment)
        self._adapter = self._start()
        self._adapter.wait_for("descriptor", START_SECONDS)
        self.restarts: list[str] = []

    def kill(self) -> None:
        self._adapter.kill()
        self._adapter.stop()
        self._adapter = self._start()

    def check(self) -> None:
        """Start it again if it has ended by itself."""
        if self._adapter.process.poll() is not None:
            self.restarts.append(self._adapter.errors.strip().rpartition("\n")[2])
            self._adapter.stop()
            self._adapter = self._start()

    def stop(self) -> None:
        self._adapter.stop()


def _inflict(name: str, place: Place, database: str, worker: _Kept) -> None:
    if name == "kill of the worker":
        worker.kill()
    elif name == "kill of all sessions":
        with psycopg.connect(place.server.dsn("postgres"), autocommit=True) as administrator:
            administrator.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                (database,),
            )
    else:
        cluster = place.server.cluster
        cluster.user.run(
            [
                cluster.binaries.program("pg_ctl"), "stop", f"--pgdata={cluster.data}",
                "--wait", "--silent", "--mode=immediate",
            ],
            cwd=cluster.home,
        )  # fmt: skip
        if read_postmaster(cluster.data) is not None:
            raise AdapterFailed("PostgreSQL did not stop")
        place.server.revive()


def _pause(seconds: float, *kept: _Kept) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(0.2, left))
        for each in kept:
            each.check()


def _wait_until_drained(
    place: Place, database: str, arm: Arm, folder: Path, worker: _Kept
) -> list[tuple[int, float]]:
    """Wait until every confirmed job has run, or none has run for half a minute."""
    deadline, done = time.monotonic() + DRAIN_SECONDS, 0
    while True:
        posted, handled = read_ledger(folder)
        if arm.has_effects:
            # What a handler did counts when it was committed, not when it ran.
            handled = _effects(place.server.dsn(database))
        seen = {number for number, _ in handled}
        if len(seen) > done:
            deadline, done = time.monotonic() + DRAIN_SECONDS, len(seen)
        if time.monotonic() > deadline or all(
            number in seen for first, amount, _ in posted for number in range(first, first + amount)
        ):
            return handled
        _pause(0.5, worker)


def _effects(dsn: str) -> list[tuple[int, float]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(
            f"select number, extract(epoch from at)::float8 from {EFFECT}".encode()
        ).fetchall()


def _observe(adapter: Adapter, meter: Meter, seconds: int) -> dict[str, Any]:
    # The first sample after a change belongs to both phases.
    adapter.wait_for("detail", START_SECONDS)
    before, done, began = meter.read(), adapter.completed, time.monotonic()
    latencies = Histogram()
    for _ in range(seconds):
        record = adapter.wait_for("detail", START_SECONDS)
        latencies.merge(Histogram(map(tuple, record["latencies"])))
    after, took = meter.read(), time.monotonic() - began
    jobs = max(1, adapter.completed - done)
    p50, p95, p99 = latencies.percentiles(0.5, 0.95, 0.99)
    return {
        "rate": jobs / took,
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "server_ms_per_1000": (after.cpu_seconds - before.cpu_seconds) * 1e6 / jobs,
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
    }


def _drain(adapter: Adapter, cell: Cell) -> float | None:
    """Return the seconds until no more waits than a tenth of a second of load; None if longer."""
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_SECONDS:
        record = adapter.wait_for("detail", START_SECONDS)
        if record["posted"] - record["completed"] <= max(cell.rate / 10, 2 * cell.in_flight):
            return time.monotonic() - began
    return None


@contextmanager
def _pressure(name: str, dsn: str) -> Iterator[None]:
    if name == "held snapshot":
        with psycopg.connect(dsn) as connection:
            # A transaction id and a snapshot: nothing that dies from now on may be removed.
            connection.execute("set transaction isolation level repeatable read")
            connection.execute("select pg_current_xact_id()")
            yield
    elif name == "active readers":
        stopping = threading.Event()
        readers = [
            threading.Thread(target=_scan, args=(dsn, stopping), daemon=True)
            for _ in range(READERS)
        ]
        for reader in readers:
            reader.start()
        try:
            yield
        finally:
            stopping.set()
            for reader in readers:
                reader.join()
    else:
        yield


def _scan(dsn: str, stopping: threading.Event) -> None:
    """Count the rows of all tables again and again, in snapshots that last a second each."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
        while not stopping.is_set():
            with connection.transaction():
                connection.execute("set transaction isolation level repeatable read, read only")
                tables = connection.execute(
                    "select format('%I.%I', schemaname, tablename) from pg_tables"
                    " where schemaname not in ('pg_catalog', 'information_schema')"
                ).fetchall()
                deadline = time.monotonic() + 1
                while not stopping.is_set() and time.monotonic() < deadline:
                    for (table,) in tables:
                        connection.execute(f"select count(*) from {table}".encode())
                    stopping.wait(SCAN_PAUSE_SECONDS)
