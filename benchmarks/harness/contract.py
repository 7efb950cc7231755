"""What every adapter of the public harness does alike: settings, load, samples, signals.

The contract: settings come from the environment; one JSON record per line goes to standard output,
a descriptor first and then samples at multiples of `SAMPLE_EVERY_S` of the clock; logs go to
standard error; SIGTERM ends the process with status 0 within five seconds. This module needs the
standard library only, so that the peers' adapters can use it in an environment of their own.

Beyond the contract, for the driver of this repository:

- `WORKER_COUNT=0` produces only, `PRODUCER_RATE=0` consumes only.
- `PRODUCER_MODE=depth-target` counts what this process has posted and not yet handled, instead of
  asking the server, so that the measurement puts no load of its own on it.
- `LEDGER_FOLDER` names a folder to which each posted batch and each handled job is written, to
  count lost and doubled jobs after a crash.
- `SAMPLE_DETAIL=1` adds a record with totals and the counts of the latency histogram.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from benchmarks.harness.histogram import Histogram

__all__ = ["Description", "Jobs", "Settings", "System", "read_ledger", "run"]

WINDOW_SECONDS = 30
RETRY_SECONDS = 0.2
# Wide enough that posting one batch never drains the queue, small enough to stay in memory.
IDLE_SECONDS = 0.002
_HANDLED = struct.Struct("<qd")
_POSTED = struct.Struct("<qqd")


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment of an adapter."""

    database_url: str
    producer_mode: str
    producer_rate: float
    producer_batch_max: int
    producer_batch_ms: float
    target_depth: int
    worker_count: int
    payload_bytes: int
    work_ms: float
    sample_every_s: float
    instance: int
    is_paced_by_harness: bool
    produces: bool
    rate_file: str
    ledger_folder: str
    has_detail: bool

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; `DATABASE_URL` is required. Raises KeyError or ValueError."""
        get = environment.get
        scenario = get("SCENARIO", "long_horizon")
        if scenario != "long_horizon":
            raise ValueError(f"no scenario {scenario!r}; there is long_horizon")
        instance = int(get("BENCH_INSTANCE_ID", "0"))
        is_first_only = get("PRODUCER_ONLY_INSTANCE_ZERO", "0") in ("1", "true")
        return cls(
            database_url=environment["DATABASE_URL"],
            producer_mode=get("PRODUCER_MODE", "fixed"),
            producer_rate=float(get("PRODUCER_RATE", "800")),
            producer_batch_max=max(1, int(get("PRODUCER_BATCH_MAX", "128"))),
            producer_batch_ms=float(get("PRODUCER_BATCH_MS", "10")),
            target_depth=int(get("TARGET_DEPTH", "1000")),
            worker_count=int(get("WORKER_COUNT", "32")),
            payload_bytes=int(get("JOB_PAYLOAD_BYTES", "256")),
            work_ms=float(get("JOB_WORK_MS", "1")),
            sample_every_s=float(get("SAMPLE_EVERY_S", "5")),
            instance=instance,
            is_paced_by_harness=get("PRODUCER_PACING", "adapter") == "harness",
            produces=not (is_first_only and instance) and float(get("PRODUCER_RATE", "800")) > 0,
            rate_file=get("PRODUCER_RATE_CONTROL_FILE", ""),
            ledger_folder=get("LEDGER_FOLDER", ""),
            has_detail=get("SAMPLE_DETAIL", "0") == "1",
        )

    @property
    def rate(self) -> float:
        """The rate that is asked for now: the harness may change it through a file."""
        if self.rate_file:
            with contextlib.suppress(OSError, ValueError):
                return float(Path(self.rate_file).read_text(encoding="ascii"))
        return self.producer_rate


@dataclass(frozen=True, slots=True)
class Description:
    """What the descriptor record says about a system."""

    system: str
    version: str
    schema_version: str
    tables: list[str]


Handler = Callable[[str], Awaitable[None]]


class System(Protocol):
    """A queue under measurement. Only `post` and `work` run under load."""

    async def prepare(self) -> Description:
        """Install the schema and create the queue where they are missing; open connections."""

    async def post(self, payloads: list[str]) -> None:
        """Post a batch durably. After an exception the next call must be able to succeed."""

    async def work(self, jobs: Jobs, stopping: asyncio.Event) -> None:
        """Hand each job's payload to `jobs` until asked to stop."""

    async def depth(self) -> int | None:
        """Return how many jobs wait, not yet claimed; None when that would need a scan."""

    async def close(self) -> None:
        """Close the connections."""


class Jobs:
    """The work of a job, and what is counted about it."""

    def __init__(self, settings: Settings) -> None:
        self._work_seconds = settings.work_ms / 1000
        self.posted = 0
        self.started = 0
        self.completed = 0
        self.latencies = Histogram()
        self._ledger = _open_ledger(settings, "handled")

    async def __call__(self, payload: str) -> None:
        """Do one job from the text that was posted."""
        await self.do(json.loads(payload))

    async def do(self, job: Mapping[str, Any]) -> None:
        """Do one job."""
        self.started += 1
        self.latencies.add((time.time() - job["at"]) * 1000)
        if self._work_seconds:
            await asyncio.sleep(self._work_seconds)
        if self._ledger is not None:
            os.write(self._ledger, _HANDLED.pack(job["seq"], time.time()))
        self.completed += 1

    def take_latencies(self) -> Histogram:
        """Return what was counted since the last call."""
        taken, self.latencies = self.latencies, Histogram()
        return taken


class _Producer:
    def __init__(self, settings: Settings, system: System, jobs: Jobs) -> None:
        self._settings = settings
        self._system = system
        self._jobs = jobs
        self._sequence = settings.instance * 10**12
        self._padding = "x" * max(0, settings.payload_bytes - 60)
        self._ledger = _open_ledger(settings, "posted")

    async def run(self) -> None:
        settings = self._settings
        if settings.producer_mode == "depth-target":
            await self._fill()
        elif settings.is_paced_by_harness:
            await self._follow_tokens()
        else:
            await self._keep_rate()

    async def _fill(self) -> None:
        jobs, settings = self._jobs, self._settings
        while True:
            missing = settings.target_depth - (jobs.posted - jobs.completed)
            if missing >= min(settings.producer_batch_max, settings.target_depth):
                await self._post(min(missing, settings.producer_batch_max))
            else:
                await asyncio.sleep(IDLE_SECONDS)

    async def _keep_rate(self) -> None:
        """Post what the elapsed time asks for; time spent in posting is not lost to the rate."""
        credit, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(self._settings.producer_batch_ms / 1000)
            now = time.monotonic()
            credit += self._settings.rate * (now - last)
            last = now
            amount = min(int(credit), self._settings.producer_batch_max)
            if amount:
                credit -= amount
                await self._post(amount)

    async def _follow_tokens(self) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            word, _, amount = line.decode().strip().partition(" ")
            if word == "ENQUEUE" and amount.isdigit() and int(amount):
                await self._post(min(int(amount), self._settings.producer_batch_max))

    async def _post(self, amount: int) -> None:
        first = self._sequence
        self._sequence += amount
        now = time.time()
        payloads = [
            f'{{"seq": {first + each}, "at": {now:.6f}, "padding": "{self._padding}"}}'
            for each in range(amount)
        ]
        # Counted before: a job may be handled before the call returns.
        self._jobs.posted += amount
        try:
            await self._system.post(payloads)
        except Exception as error:  # noqa: BLE001 - the database may be away; the load goes on
            self._jobs.posted -= amount
            log(f"post failed: {type(error).__name__}: {str(error).strip()[:300]}")
            await asyncio.sleep(RETRY_SECONDS)
        else:
            if self._ledger is not None:
                os.write(self._ledger, _POSTED.pack(first, amount, now))


class _Sampler:
    def __init__(
        self, settings: Settings, system: System, jobs: Jobs, description: Description
    ) -> None:
        self._settings = settings
        self._system = system
        self._jobs = jobs
        self._name = description.system
        every = settings.sample_every_s
        self._windows: deque[Histogram] = deque(maxlen=max(1, round(WINDOW_SECONDS / every)))
        self._last = (time.monotonic(), 0, 0)

    async def run(self) -> None:
        every = self._settings.sample_every_s
        while True:
            await asyncio.sleep(every - time.time() % every)
            await self.emit()

    async def emit(self) -> None:
        """Write the samples of the time since the last ones."""
        settings, jobs = self._settings, self._jobs
        fresh = jobs.take_latencies()
        now, posted, completed = time.monotonic(), jobs.posted, jobs.completed
        if settings.has_detail:
            # First: the driver reads the server's meters when this line arrives.
            detail = {
                "kind": "detail", "posted": posted, "started": jobs.started,
                "completed": completed, "latencies": fresh.items(),
            }  # fmt: skip
            write(self._stamp(detail))
        self._windows.append(fresh)
        rolling = Histogram()
        for window in self._windows:
            rolling.merge(window)
        p50, p95, p99 = rolling.percentiles(0.5, 0.95, 0.99)
        then, posted_then, completed_then = self._last
        seconds = max(now - then, 1e-6)
        self._last = (now, posted, completed)
        metrics = [
            ("claim_p50_ms", p50, WINDOW_SECONDS),
            ("claim_p95_ms", p95, WINDOW_SECONDS),
            ("claim_p99_ms", p99, WINDOW_SECONDS),
            ("enqueue_rate", (posted - posted_then) / seconds, settings.sample_every_s),
            ("completion_rate", (completed - completed_then) / seconds, settings.sample_every_s),
        ]
        if not settings.instance:
            # Observations of the whole queue: one instance reports them.
            metrics += [
                ("queue_depth", await self._depth(), 0),
                ("producer_target_rate", settings.rate, 0),
            ]
        for metric, value, window_s in metrics:
            sample = {
                "kind": "adapter", "subject_kind": "adapter", "subject": "",
                "metric": metric, "value": round(value, 3), "window_s": window_s,
            }  # fmt: skip
            write(self._stamp(sample))

    async def _depth(self) -> int:
        own = max(0, self._jobs.posted - self._jobs.started)
        if self._settings.has_detail:
            return own
        try:
            found = await self._system.depth()
        except Exception as error:  # noqa: BLE001 - the database may be away; sampling goes on
            log(f"depth failed: {type(error).__name__}: {str(error).strip()[:300]}")
            found = None
        return own if found is None else found

    def _stamp(self, record: dict[str, Any]) -> dict[str, Any]:
        stamp = {"t": _now(), "system": self._name, "instance_id": self._settings.instance}
        return {**stamp, **record}


async def run(settings: Settings, system: System) -> int:
    """Run an adapter until it is asked to stop; return the status of the process."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    description = await system.prepare()
    write(
        {
            "kind": "descriptor",
            "system": description.system,
            "event_tables": description.tables,
            "extensions": [],
            "version": description.version,
            "schema_version": description.schema_version,
            "db_name": urlsplit(settings.database_url).path.removeprefix("/"),
            "started_at": _now(),
            "instance_id": settings.instance,
        }
    )
    jobs = Jobs(settings)
    sampler = _Sampler(settings, system, jobs, description)
    load = [asyncio.create_task(sampler.run())]
    if settings.produces:
        load.append(asyncio.create_task(_Producer(settings, system, jobs).run()))
    wait = asyncio.create_task(stopping.wait())
    work = asyncio.create_task(
        system.work(jobs, stopping) if settings.worker_count else stopping.wait()
    )
    ended, _ = await asyncio.wait([wait, work, *load], return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    for task in load:
        task.cancel()
    await asyncio.gather(*load, return_exceptions=True)
    status = 0
    try:
        await asyncio.wait_for(work, 4)
    except TimeoutError:
        log("the worker did not stop in time")
    except Exception as error:  # noqa: BLE001 - whatever ended the worker ends the process
        log(f"the worker failed: {type(error).__name__}: {str(error).strip()[:2000]}")
        status = 1
    if wait not in ended and not status:
        log("the load ended by itself")
        status = 1
    with contextlib.suppress(Exception):
        await sampler.emit()
        await asyncio.wait_for(system.close(), 1)
    return status


def write(record: dict[str, Any]) -> None:
    """Write one record to standard output."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def log(text: str) -> None:
    """Write a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def read_ledger(folder: Path) -> tuple[list[tuple[int, int, float]], list[tuple[int, float]]]:
    """Return the posted batches (first number, amount, time) and the handled jobs (number, time).

    A record that a killed process wrote in part is left out.
    """
    posted = [each for file in sorted(folder.glob("posted-*")) for each in _read(file, _POSTED)]
    handled = [each for file in sorted(folder.glob("handled-*")) for each in _read(file, _HANDLED)]
    return posted, handled


def _read(file: Path, record: struct.Struct) -> list[Any]:
    data = file.read_bytes()
    return list(record.iter_unpack(data[: len(data) // record.size * record.size]))


def _open_ledger(settings: Settings, name: str) -> int | None:
    if not settings.ledger_folder:
        return None
    file = Path(settings.ledger_folder) / f"{name}-{settings.instance}-{os.getpid()}"
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
