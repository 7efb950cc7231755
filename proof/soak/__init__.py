"""Everything at work for a long time, with kills: does anything grow?

`postroad up` runs all services with its sample partners: exchange with ERP databases, coordination
with a Reader, the intake on Celery with an SFTP server, a bridge to another database, sagas,
leases and alerts. Beside it the clients of the faults part post, handle and lease messages: in
transactions, with leases, delays, expiry, deduplication, groups and sagas. Partners of the other
services record what they give and get: a sender and two instances of an ERP, a Writer and a user
of the Reader, a shop with files. Clients, partners and Celery workers are killed and sessions
ended at random. Samples of every process, of the database and of the disk are taken at an interval;
after the warm-up none may grow. At the end the queues are drained, and the checkers of
`proof.history` judge what was recorded.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median

import psycopg

from postroad.postgres import EmbeddedServer
from proof.cluster.processes import wait_for
from proof.faults.driver import SOURCES
from proof.faults.judge import judge, shortened, store_effects
from proof.faults.workload import QUEUES, Orders, create, dead
from proof.history.checkers import Finding
from proof.history.record import History, Recorder
from proof.options import ROOT, Options
from proof.report import Report, Table
from proof.soak.partners import Place, judge_partners, prepare
from proof.soak.samples import LIMITS, Samples, database, disk_megabytes, process, slope

__all__ = ["run"]

QUICK_SECONDS, FULL_SECONDS = 120.0, 6 * 3600.0
# Of the time under load, before anything is judged.
WARM_UP_SHARE = 1 / 3
CLIENTS = {"poster": "poster", "worker-1": "worker", "worker-2": "worker", "leaser": "leaser"}
PARTNERS = {
    "sender": "send",
    "erp-1": "hand_over",
    "erp-2": "hand_over",
    "writer": "write",
    "watcher": "watch",
    "shop": "put",
    "notices": "notice",
}
RATE = 30.0
SAMPLE_SECONDS = 5.0
START_SECONDS = 180.0
DRAIN_SECONDS = 120.0
_UNFINISHED = """
select (select sum(depth) from mbus.status where queue = any (%s))::bigint
  + (select count(*) from mbus.saga
     where name = 'trip' and state not in ('completed', 'compensated'))
"""


class Soak:
    """The processes of one run, and what they hold."""

    def __init__(self, folder: Path, history: Path, seed: int) -> None:
        self.folder = folder
        self.logs = folder / "clients"
        self.logs.mkdir()
        self.history = history
        self.samples = Samples()
        self.faults: dict[str, int] = {}
        self.problems: list[str] = []
        self.server = EmbeddedServer(folder)
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._chance = Random(seed)
        self._starts = seed * 10_000
        self._recorder = Recorder(history, "driver")
        self._up: subprocess.Popen[bytes] | None = None
        self._token = ""

    @property
    def place(self) -> Place:
        """What the partners need to know."""
        text = (self.logs / "up.log").read_text(encoding="utf-8")
        url = re.findall(r"^console +(http.*?)/console", text, re.MULTILINE)[-1]
        history = str(self.history / "partners")
        return Place(self.dsn, url, self._token, str(self.folder), history, self._starts)

    @property
    def dsn(self) -> str:
        """The database of everything, as `postroad up` prints it."""
        text = (self.logs / "up.log").read_text(encoding="utf-8")
        return str(re.findall(r"^database \(embedded\) +(.*?) *$", text, re.MULTILINE)[-1])

    # Processes.

    def start_services(self) -> None:
        """Run `postroad up`, and wait until it has said that everything runs."""
        log = self.logs / "up.log"
        with log.open("ab") as out:
            self._up = subprocess.Popen(
                [sys.executable, "-m", "postroad", "up", "--sample", "--rate", "5", "--port", "0"],
                stdout=out,
                stderr=out,
                cwd="/",
                env={
                    **{name: text for name, text in os.environ.items() if "POSTROAD" not in name},
                    "PYTHONPATH": SOURCES,
                    "POSTROAD_DATA_FOLDER": str(self.folder),
                },
                start_new_session=True,
            )
        wait_for(lambda: "Ctrl-C" in log.read_text(encoding="utf-8"), "all services", START_SECONDS)

    def prepare(self) -> None:
        """Create what clients and partners need."""
        create(self.dsn)
        self._token = prepare(self.dsn)

    def start_client(self, name: str) -> None:
        """Start one client or partner."""
        self._starts += 1
        orders: Orders | Place = self.place
        words = ["proof.soak.partners", PARTNERS.get(name, ""), name]
        if name in CLIENTS:
            orders = Orders(self.dsn, str(self.history), self._starts, RATE)
            words = ["proof.faults.clients", CLIENTS[name], name]
        with (self.logs / f"{name}.log").open("ab") as log:
            client = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": SOURCES},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert client.stdin is not None
        client.stdin.write(json.dumps(asdict(orders)).encode())
        client.stdin.close()
        self._clients[name] = client

    def stop(self) -> None:
        """End every process that this run started."""
        for client in self._clients.values():
            client.kill()
            client.wait()
        if self._up is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._up.pid, signal.SIGKILL)
            self._up.wait()
        self.server.halt()
        self._recorder.close()

    # The time under load.

    def load(self, seconds: float) -> None:
        """Take samples and make faults until the time is over."""
        for name in (*CLIENTS, *PARTNERS):
            self.start_client(name)
        # A program that is being loaded grows.
        wait_for(self._have_begun, "clients and partners", START_SECONDS)
        began = time.monotonic()
        fault_at = began + seconds * 0.1
        while (now := time.monotonic()) - began < seconds:
            self._check()
            self.sample(now - began)
            if now >= fault_at:
                self._fault()
                fault_at = now + self._chance.uniform(0.05, 0.15) * min(seconds, 600)
            time.sleep(max(0.0, SAMPLE_SECONDS - (time.monotonic() - now)))

    def _have_begun(self) -> bool:
        return all(any(self.history.rglob(f"{name}.*.jsonl")) for name in self._clients)

    def _check(self) -> None:
        for name, client in list(self._clients.items()):
            if client.poll() is not None:
                if client.returncode != -9:
                    self.problems.append(f"{name} ended with {client.returncode}")
                self.start_client(name)
        if self._up is not None and self._up.poll() is not None:
            self.problems.append(f"the services ended with {self._up.returncode}")
            self.start_services()

    def _fault(self) -> None:
        kind = self._chance.choice(("kill_client", "end_sessions", "kill_service_worker"))
        at = self._recorder.now()
        if kind == "kill_client":
            self._clients[self._chance.choice(list(self._clients))].kill()
        elif kind == "end_sessions":
            with psycopg.connect(self.dsn, autocommit=True) as session:
                session.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where backend_type = 'client backend' and pid <> pg_backend_pid()"
                    " and random() < 0.5"
                )
        else:
            # Processes of Celery: the only ones that the services start beside PostgreSQL.
            workers = [pid for name, pid in self._service_processes() if name.startswith("celery")]
            if workers:
                os.kill(self._chance.choice(workers), signal.SIGKILL)
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self._recorder.note("fault", kind=kind, target="", began=at, ended=self._recorder.now())

    def _service_processes(self) -> Iterator[tuple[str, int]]:
        """Return the processes of the services: `up`, and what it started except PostgreSQL."""
        assert self._up is not None
        yield "postroad up", self._up.pid
        for pid in _descendants(self._up.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
                text = " ".join(words)
                if "postgres" in Path(words[0]).name:
                    continue
                yield ("celery worker" if "celery" in text else Path(words[0]).name), pid

    def sample(self, at: float) -> None:
        """Measure everything once."""
        totals: dict[tuple[str, str], float] = {}
        named = [*self._service_processes(), *((name, c.pid) for name, c in self._clients.items())]
        for name, pid in named:
            # A process that was killed has nothing.
            with suppress(OSError, ValueError):
                for metric, value in process(pid).items():
                    key = metric, name
                    totals[key] = totals.get(key, 0.0) + value
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn) as session:
            totals |= database(session)
        totals["log", "all services"] = disk_megabytes(self.folder / "logs")
        totals["log", "clients"] = disk_megabytes(self.logs)
        totals["disk", "data folder"] = disk_megabytes(self.folder)
        for (metric, subject), value in totals.items():
            self.samples.add(at, metric, subject, value)

    def drain(self) -> None:
        """Let the clients finish, and wait until nothing is left to do."""
        for name in ("poster", "sender", "writer", "shop"):
            self._clients[name].terminate()
        for name in ("poster", "sender", "writer", "shop"):
            self._clients[name].wait(120)
        with suppress(TimeoutError):
            # What is left after that is a finding.
            wait_for(
                lambda: not any(one.lost for one in judge_partners(self.place)),
                "everything that partners gave",
                DRAIN_SECONDS,
            )
        with psycopg.connect(self.dsn, autocommit=True) as session:

            def is_drained() -> bool:
                return session.execute(_UNFINISHED, (list(QUEUES),)).fetchall() == [(0,)]

            try:
                wait_for(is_drained, "empty queues", DRAIN_SECONDS)
            except TimeoutError:
                self.problems.append("the queues of the clients were not drained")
            # The sample has dead messages: some of its partners refuse.
            own = [text for text in dead(session) if text.split()[0] in QUEUES]
            self.problems += [f"dead: {text}" for text in own[:10]]
        for client in self._clients.values():
            client.terminate()
        for client in self._clients.values():
            client.wait(60)
        store_effects(self.dsn, self._recorder)


def run(options: Options) -> Report:
    """Load, drain and judge."""
    seconds = options.seconds or (FULL_SECONDS if options.is_full else QUICK_SECONDS)
    history = options.scratch / "soak" / "history"
    shutil.rmtree(history, ignore_errors=True)
    with _soak(history, options.seed) as soak:
        soak.start_services()
        soak.prepare()
        soak.load(seconds)
        soak.drain()
        journeys = _journeys(soak.dsn)
        partners = judge_partners(soak.place)
    verdict = judge(History.read(history), is_synchronous=True)
    warm_up = seconds * WARM_UP_SHARE
    violations = [*soak.problems, *verdict.violations, *soak.samples.judge(warm_up)]
    for finding in partners:
        found = finding.violations + finding.lost
        violations += shortened(finding.promise, found or _vacuous(finding))
    return Report(
        title="Soak",
        introduction=__doc__.partition("\n\n")[2],
        facts=(
            ("time under load", f"{seconds / 60:.0f} minutes"),
            ("judged after", f"{warm_up / 60:.0f} minutes"),
            ("operations of the clients", f"{verdict.operations:,}"),
            *journeys,
            ("faults", ", ".join(f"{n} {kind}" for kind, n in sorted(soak.faults.items()))),
            ("acknowledged and lost", f"{len(verdict.lost):,}"),
        ),
        tables=(
            Table(
                "Growth",
                ("measure", "of", "least", "median", "most", "growth in an hour", "judged"),
                tuple(_rows(soak.samples, warm_up)),
            ),
            Table(
                "Promises",
                ("promise", "judged", "violations"),
                tuple(
                    (one.promise, f"{one.checked:,}", str(len(one.violations) + len(one.lost)))
                    for one in (*verdict.findings, *partners)
                ),
            ),
        ),
        violations=tuple(violations),
        limits=(
            *(
                ()
                if seconds >= FULL_SECONDS
                else (f"This run took {seconds / 60:.0f} minutes. Six hours were not run.",)
            ),
            "Memory is what a process does not share; its clients keep histories of their calls.",
            "Journals (schemas other than the bus) keep what happened for days or weeks and grow"
            " until then; so do the tables in which the clients record their work. They are shown,"
            " not judged.",
            "A process that was killed begins again: its memory before is in the same series.",
        ),
    )


def _vacuous(finding: Finding) -> list[str]:
    return [] if finding.checked else [f"{finding.promise}: there was nothing to judge"]


@contextmanager
def _soak(history: Path, seed: int) -> Iterator[Soak]:
    # Many sessions, sockets and log files at once.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    # The server of the database runs as another user.
    folder.chmod(0o755)
    soak = Soak(folder, history, seed)
    try:
        yield soak
    except BaseException as failure:
        with suppress(OSError):
            failure.add_note((soak.logs / "up.log").read_text(encoding="utf-8")[-3000:])
        raise
    finally:
        soak.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _journeys(dsn: str) -> list[tuple[str, str]]:
    """Count what the services did meanwhile."""
    counted = {
        "exchange: processes": "select count(*) from exchange.process",
        "coordination: events": 'select count(*) from coordination."AppEvent"',
        "intake: files": "select count(*) from intake.imported_files where status = 'completed'",
        "bridge: messages": (
            "select coalesce(sum(upper(r) - lower(r)), 0)"
            " from bridge.ledger l cross join unnest(l.numbers) r"
        ),
    }
    found = []
    with psycopg.connect(dsn, autocommit=True) as session:
        names = session.execute(
            "select datname from pg_database where not datistemplate and datallowconn"
        ).fetchall()
    for title, statement in counted.items():
        total = 0
        # The parts of the sample have databases of their own.
        for (name,) in names:
            with (
                suppress(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName),
                psycopg.connect(dsn, dbname=name) as session,
            ):
                row = session.execute(statement.encode()).fetchone()
                total += int(row[0]) if row else 0
        found.append((title, f"{total:,}"))
    return found


def _rows(samples: Samples, warm_up: float) -> Iterator[tuple[str, ...]]:
    for (metric, subject), values in sorted(samples.after(warm_up).items()):
        numbers = [value for _, value in values]
        unit = LIMITS[metric].unit if metric in LIMITS else "MB"
        yield (
            f"{metric}{f', {unit}' if unit else ''}",
            subject,
            *(f"{number:,.1f}" for number in (min(numbers), median(numbers), max(numbers))),
            f"{slope(values):+,.1f}",
            "yes" if metric in LIMITS else "no",
        )


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children = [int(word) for word in re.findall(r"\d+", file.read_text(encoding="ascii"))]
            for child in children:
                found += [child, *_descendants(child)]
    return found
