"""Runs an adapter under one cell's load and measures it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from benchmarks.harness.arms import ROOT, Arm
from benchmarks.harness.cells import Cell
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.meters import Meter, cpu_seconds_of, dead_rows
from benchmarks.lab import open_server
from postroad.postgres import EmbeddedServer
from postroad.postgres.postmaster import read_postmaster

__all__ = ["Adapter", "Measured", "Place", "fresh_database", "measure", "open_place"]

START_SECONDS = 60.0
STOP_SECONDS = 8.0
# How much posted work waits for the workers under a saturating load.
DEPTH_PER_HANDLER = 16
DEPTH_MIN = 4_000
ROLE = "harness"
_names = itertools.count(1)


class AdapterFailed(Exception):
    """An adapter did not start, or ended under load."""


@dataclass(frozen=True, slots=True)
class Place:
    """The server that adapters are measured on."""

    server: EmbeddedServer

    @property
    def postmaster(self) -> int:
        """The process that all server processes descend from."""
        running = read_postmaster(self.server.cluster.data)
        if running is None:
            raise AdapterFailed("PostgreSQL does not run")
        return running.pid


@dataclass(frozen=True, slots=True)
class Measured:
    """One cell of one arm. Latencies are from posting to the start of the handler."""

    jobs: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    server_ms_per_1000: float
    client_ms_per_1000: float
    wal_bytes_per_job: float
    dead_rows: int
    multixacts_per_10000: float
    sessions: int

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    def facts(self) -> dict[str, Any]:
        """Return the figures for results.json."""
        return {"rate": self.rate, **asdict(self)}


@contextmanager
def open_place() -> Iterator[Place]:
    """Run a durable server for adapters: own folder, free port on loopback, many sessions."""
    port = str(_free_port())
    with open_server(max_connections="500", listen_addresses="127.0.0.1", port=port) as server:
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as administrator:
            # Not every driver reaches the socket of the server's own user.
            administrator.execute(f"create role {ROLE} superuser login password '{ROLE}'")
        yield Place(server)


@contextmanager
def fresh_database(place: Place) -> Iterator[str]:
    """Create an empty database and drop it afterwards; yields its name."""
    name = f"harness_{next(_names)}"
    identifier = sql.Identifier(name)
    with psycopg.connect(place.server.dsn("postgres"), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(identifier))
    try:
        yield name
    finally:
        with psycopg.connect(place.server.dsn("postgres"), autocommit=True) as administrator:
            administrator.execute(sql.SQL("drop database {} with (force)").format(identifier))


class Adapter:
    """A running adapter process whose records are read by a thread."""

    def __init__(self, arm: Arm, address: str, environment: dict[str, str]) -> None:
        self.arm = arm
        self._errors = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by stop
            prefix="harness-", suffix=".log"
        )
        self.process = subprocess.Popen(
            arm.command,
            env={**os.environ, **arm.environment, "DATABASE_URL": address, **environment},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._records: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.completed = 0

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error, without the folders of this machine."""
        text = Path(self._errors.name).read_text(encoding="utf-8", errors="replace")
        return text.replace(str(ROOT), ".")[-1500:]

    def wait_for(self, kind: str, seconds: float) -> dict[str, Any]:
        """Return the next record of a kind. Raises AdapterFailed when none comes in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                record = self._records.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                raise AdapterFailed(
                    f"{self.arm.name}: no {kind} in {seconds:.0f} s: {self.errors}"
                ) from None
            if record is None:
                raise AdapterFailed(f"{self.arm.name} ended: {self.errors}")
            if record["kind"] == "detail":
                self.completed = record["completed"]
            if record["kind"] == kind:
                return record

    def warm_up(self, seconds: int) -> None:
        """Wait for the first job done, and for so many seconds of load after it."""
        deadline = time.monotonic() + START_SECONDS
        while not self.wait_for("detail", START_SECONDS)["completed"]:
            if time.monotonic() > deadline:
                raise AdapterFailed(f"{self.arm.name}: no job was done: {self.errors}")
        for _ in range(seconds):
            self.wait_for("detail", START_SECONDS)

    def kill(self) -> None:
        """Kill the process with SIGKILL, with everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> float:
        """Ask it to stop; return the seconds that it took. Killed when it takes too long."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        took = time.monotonic() - began
        # Children that outlive their parent would go on using the server.
        self.kill()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return took

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        for line in stream:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and "kind" in record:
                    self._records.put(record)
        self._records.put(None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def address_of(place: Place, database: str) -> str:
    """Return the database as a URL on loopback, which every driver reads."""
    where = conninfo_to_dict(place.server.dsn(database))
    return f"postgresql://{ROLE}:{ROLE}@127.0.0.1:{where['port']}/{database}"


def environment_of(cell: Cell, sample_every_s: float = 1.0) -> dict[str, str]:
    """Return the contract's environment for a cell."""
    depth = max(DEPTH_MIN, cell.in_flight * DEPTH_PER_HANDLER)
    return {
        "SCENARIO": "long_horizon",
        "PRODUCER_MODE": "fixed" if cell.rate else "depth-target",
        "PRODUCER_RATE": str(cell.rate or 1),
        "TARGET_DEPTH": str(depth),
        "WORKER_COUNT": str(cell.in_flight),
        "JOB_WORK_MS": f"{cell.work_ms:g}",
        "JOB_PAYLOAD_BYTES": "256",
        "SAMPLE_EVERY_S": f"{sample_every_s:g}",
        "SAMPLE_DETAIL": "1",
        "BENCH_INSTANCE_ID": "0",
    }


def measure(place: Place, arm: Arm, cell: Cell, warm_seconds: int, seconds: int) -> Measured:
    """Measure one cell on a fresh database. Raises AdapterFailed."""
    with fresh_database(place) as database:
        meter = Meter(place.server.dsn("postgres"), database, place.postmaster)
        try:
            multixacts = meter.multixacts()
            adapter = Adapter(arm, address_of(place, database), environment_of(cell))
            try:
                adapter.wait_for("descriptor", START_SECONDS)
                adapter.warm_up(warm_seconds)
                before, began, done = meter.read(), time.monotonic(), adapter.completed
                client = cpu_seconds_of(adapter.process.pid)
                latencies, sessions = Histogram(), before.sessions
                for _ in range(seconds):
                    record = adapter.wait_for("detail", START_SECONDS)
                    latencies.merge(Histogram(map(tuple, record["latencies"])))
                after, took = meter.read(), time.monotonic() - began
                client = cpu_seconds_of(adapter.process.pid) - client
                jobs = adapter.completed - done
            finally:
                adapter.stop()
            total = adapter.completed
            created = meter.multixacts() - multixacts
        finally:
            meter.close()
        dead = dead_rows(place.server.dsn(database))
    sessions = max(sessions, after.sessions)
    p50, p95, p99 = latencies.percentiles(0.5, 0.95, 0.99)
    thousands = max(jobs, 1) / 1000
    return Measured(
        jobs,
        took,
        p50,
        p95,
        p99,
        (after.cpu_seconds - before.cpu_seconds) * 1000 / thousands,
        client * 1000 / thousands,
        (after.wal_bytes - before.wal_bytes) / max(jobs, 1),
        dead,
        created / max(total, 1) * 10_000,
        sessions,
    )
