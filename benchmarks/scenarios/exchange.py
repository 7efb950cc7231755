"""The exchange: intake and cycles against the bare disk, API_1 under a backlog, memory."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness.meters import cpu_seconds_of
from benchmarks.intake_lab import free_port, rclone, wait_for
from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.rounds import Rates, interleave, median, ratio, thousands
from postroad.cli.components import ALERTS, BUS, EXCHANGE
from postroad.exchange import operations
from postroad.postgres import install, run_blocking

CLIENTS = 16
ROUNDS = 3
MESSAGES = 3_200
CYCLES = 1_600
WAITING_FEW, WAITING_MANY = 1_000, 1_000_000
STARTS = 60
WORKERS = 4
LARGE = 1_024
CONTENT = os.urandom(10 * 1024)


def run(lab: Lab) -> Findings:
    """Measure the bare disk beside each figure that is compared with it."""
    for schema in (ALERTS, EXCHANGE):
        with psycopg.connect(lab.dsn) as connection:
            install(connection, schema)
    root = Path(tempfile.mkdtemp(prefix="exchange-bench-"))
    try:
        with _serving(lab, root) as server:
            found = _measure(lab, root, *server)
        with _serving(lab, root, WORKERS) as server:
            _measure_workers(lab, root, *server, found)
        with _with_store(lab, root) as (other, environment):
            found.figures += _measure_store(lab, other, root, environment)
        return found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _measure(lab: Lab, root: Path, port: int, pid: int) -> Findings:
    tokens = [_token(lab, f"c{n}") for n in range(CLIENTS)]
    rates = _intake(lab, root, port, tokens, "one process")
    cycles = lab.scaled(CYCLES / CLIENTS, 5)
    bare = median(rates, "bare disk")
    _load(lab, port, "fill", cycles, tokens)
    cycle_rate = CLIENTS * cycles / _load(lab, port, "cycle", cycles, tokens)
    lab.report("cycles")
    few = _start_times(lab, port, tokens[0], "few", WAITING_FEW)
    many = _start_times(lab, port, tokens[1], "many", lab.scaled(WAITING_MANY, 2_000))
    lab.report("backlog")
    peak = _memory(lab, port, pid, tokens, lab.scaled(LARGE / CLIENTS, 2))
    lab.report("memory")
    slower = statistics.median(many) / statistics.median(few)
    return Findings(
        [
            _share("intake of 10 KiB by 16 clients", rates),
            Figure(
                "full cycles over 16 databases",
                f"{thousands(cycle_rate)} ({cycle_rate / bare:.2f} of the bare disk)",
                judged=cycle_rate,
                unit="/s",
                bar=at_least(min(150, 0.3 * bare)),
            ),
            Figure(
                f"API_1 with {lab.scaled(WAITING_MANY, 2_000):,} waiting, times that with 1,000",
                f"{slower:.2f} ({statistics.median(many):.1f} ms)",
                judged=slower,
                unit="x",
                bar=at_most(1.3),
            ),
            Figure(
                f"memory while {lab.scaled(LARGE / CLIENTS, 2) * CLIENTS} MiB pass",
                f"{peak:.0f} MB",
                judged=peak,
                unit="MB",
                bar=at_most(300),
            ),
        ],
        {"rates": rates, "start_ms": {"few": few, "many": many}},
    )


def _intake(lab: Lab, root: Path, port: int, tokens: list[str], name: str) -> Rates:
    """Measure intake and the bare disk in turns; return the rates of both."""
    count = lab.scaled(MESSAGES / CLIENTS, 10)
    _load(lab, port, "intake", 10, tokens)
    return interleave(
        lab,
        ROUNDS,
        {
            "bare disk": lambda: _bare(root / "bare", count),
            name: lambda: CLIENTS * count / _load(lab, port, "intake", count, tokens),
        },
    )


def _share(what: str, rates: Rates) -> Figure:
    """Judge the median of each round's share of the bare disk."""
    bare, name = rates
    return Figure(
        f"{what}, share of the bare disk",
        thousands(median(rates, name)),
        f"bare disk {thousands(median(rates, bare))}",
        ratio(rates, name, bare),
        "x",
        at_least(0.5),
    )


def _measure_workers(lab: Lab, root: Path, port: int, pid: int, found: Findings) -> None:
    """Measure intake and cycles with several server processes."""
    tokens = [_token(lab, f"w{n}") for n in range(CLIENTS)]
    name = f"{WORKERS} processes"
    rates = _intake(lab, root, port, tokens, name)
    cycles = lab.scaled(CYCLES / CLIENTS, 5)
    _load(lab, port, "fill", cycles, tokens)
    before = _milliseconds(lab, pid)
    cycle_rate = CLIENTS * cycles / _load(lab, port, "cycle", cycles, tokens)
    spent = [
        (b - a) / (CLIENTS * cycles) for a, b in zip(before, _milliseconds(lab, pid), strict=True)
    ]
    lab.report("cycles of several processes")
    alone, bare = median(found.raw["rates"], "one process"), median(rates, "bare disk")
    found.figures += [
        _share(name, rates),
        Figure(
            f"intake with {WORKERS} server processes, times that with one",
            thousands(median(rates, name)),
            f"one process {thousands(alone)}",
            median(rates, name) / alone,
            "x",
            at_least(2),
        ),
        Figure(
            f"full cycles over 16 databases with {WORKERS} server processes",
            f"{thousands(cycle_rate)} ({cycle_rate / bare:.2f} of the bare disk)",
            judged=cycle_rate,
            unit="/s",
            bar=at_least(600),
        ),
        Figure(
            "processor time of a cycle, servers",
            f"{spent[0]:.1f} ms",
            f"PostgreSQL {spent[1]:.1f} ms",
        ),
    ]
    found.raw["rates of several processes"] = rates
    found.raw["cycle_ms"] = spent


def _milliseconds(lab: Lab, pid: int) -> tuple[float, float]:
    """Return the processor time of a server with its workers, and of the database's sessions."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    sessions = lab.connection.execute(
        "select pid from pg_stat_activity"
        " where datname = current_database() and backend_type = 'client backend'"
    ).fetchall()
    servers = cpu_seconds_of(pid) + sum(cpu_seconds_of(int(child)) for child in children)
    return servers * 1000, sum(cpu_seconds_of(session) for (session,) in sessions) * 1000


def _measure_store(lab: Lab, other: Lab, root: Path, environment: dict[str, str]) -> list[Figure]:
    """Measure the folder and the store by turns, each with a server and a journal of its own."""
    count, cycles = lab.scaled(MESSAGES / CLIENTS, 10), lab.scaled(CYCLES / CLIENTS, 5)
    rates: dict[str, list[float]] = {kind: [] for kind in ("intake", "cycle")}
    with (
        _serving(lab, root) as (folder_port, _),
        _serving(other, root, store="s3://bucket", **environment) as (store_port, _),
    ):
        arms = [
            (one, port, [_token(one, f"s{n}") for n in range(CLIENTS)])
            for one, port in ((lab, folder_port), (other, store_port))
        ]
        for one, port, tokens in arms:
            _load(one, port, "intake", 10, tokens)
        for _ in range(ROUNDS):
            took: dict[str, list[float]] = {kind: [] for kind in rates}
            for one, port, tokens in arms:
                took["intake"].append(_load(one, port, "intake", count, tokens))
                _load(one, port, "fill", cycles, tokens)
                took["cycle"].append(_load(one, port, "cycle", cycles, tokens))
            for kind, (in_folder, in_store) in took.items():
                rates[kind].append(in_folder / in_store)
    lab.report("store")
    found = {kind: statistics.median(shares) for kind, shares in rates.items()}
    return [
        Figure(
            f"{what} with an S3 store on the same disk, share of the folder",
            f"{found[kind]:.2f}",
            judged=found[kind],
            unit="x",
            bar=at_least(0.5),
        )
        for kind, what in (("intake", "intake of 10 KiB"), ("cycle", "full cycles"))
    ]


def _token(lab: Lab, client: str) -> str:
    return run_blocking(lab.dsn, operations.add_client, client, databases=None).token


@contextmanager
def _with_store(lab: Lab, root: Path) -> Iterator[tuple[Lab, dict[str, str]]]:
    """Run a store over a folder beside the root, with an empty journal for it."""
    (root / "s3/bucket").mkdir(parents=True)
    port = free_port()
    keys = "AKIDBENCH", "secret-of-the-bench"
    address = f"127.0.0.1:{port}"
    command = [rclone(), "serve", "s3", "--addr", address, "--auth-key", ",".join(keys)]
    store = subprocess.Popen(
        [*command, str(root / "s3")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    lab.execute("create database exchange_in_store")
    dsn = make_conninfo(lab.dsn, dbname="exchange_in_store")
    try:
        wait_for(port)
        with psycopg.connect(dsn) as connection:
            for schema in (BUS, ALERTS, EXCHANGE):
                install(connection, schema)
        names = ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY")
        given = zip(names, (f"http://{address}", *keys), strict=True)
        yield replace(lab, dsn=dsn), {f"POSTROAD_EXCHANGE__S3_{key}": one for key, one in given}
    finally:
        store.terminate()
        store.wait()
        lab.execute("drop database exchange_in_store with (force)")


@contextmanager
def _serving(
    lab: Lab, root: Path, workers: int = 1, store: str | None = None, **environment: str
) -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "postroad", "--database-url", lab.dsn, "exchange", "serve"),
            *("--root", store or str(root / "root"), "--port", "0"),
            *("--workers", str(workers), "--json"),
        ],
        env=_environment(lab) | environment,
        cwd=lab.root,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield int(url.rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        process.wait()


def _environment(lab: Lab) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(lab.root / "src"), str(lab.root)))}


def _load(lab: Lab, port: int, kind: str, count: int, tokens: list[str]) -> float:
    """Run the clients in a process of their own; return the seconds they took."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.exchange_load", str(port), kind, str(count), *tokens],
        env=_environment(lab),
        cwd=lab.root,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def _bare(folder: Path, count: int) -> float:
    """Temp, fsync, rename, fsync of the folder by as many threads: messages per second."""
    folder.mkdir(exist_ok=True)

    def work(place: int) -> None:
        parent = os.open(folder, os.O_RDONLY)
        for number in range(count):
            temporary = folder / f".{place}-{number}"
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(file, CONTENT)
            os.fsync(file)
            os.close(file)
            temporary.rename(folder / f"{place}-{number}")
            os.fsync(parent)
        os.close(parent)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    shutil.rmtree(folder)
    return CLIENTS * count / seconds


def _start_times(lab: Lab, port: int, token: str, database: str, waiting: int) -> list[float]:
    """Time API_1 of one message with so many waiting, in milliseconds."""
    body = {"id": f"first-{database}", "database": database, "body": 1}
    _call(port, token, "POST", "/messages", body)
    # Their files are not read before they are handed out, and only the first is.
    lab.execute(
        "insert into exchange.message (database_id, kind, sender, id, name, sequence, state,"
        " file_name, size, sha256, digest, folder)"
        f" select '{database}', 'message', 'bulk', '{database}-' || n, 'x', n, 'queued',"
        " n || '_x', 100, '', '', 'Messages'"
        f" from generate_series(1, {waiting}) n"
    )
    lab.execute("analyze exchange.message")
    times = []
    for number in range(STARTS):
        wish = {"database": database, "attempt": f"{database}-{number}", "max_files": 1}
        began = time.perf_counter()
        process = _call(port, token, "POST", "/processes", wish)["process"]
        times.append((time.perf_counter() - began) * 1000)
        _call(port, token, "POST", f"/processes/{process['id']}/renew")
        lab.execute(f"update exchange.process set state = 'CANCELLED' where id = '{process['id']}'")
        lab.execute(
            f"update exchange.message set state = 'queued' where process_id = '{process['id']}'"
        )
    return times[STARTS // 3 :]


def _call(port: int, token: str, method: str, path: str, body: object = None) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}
    connection.request(method, f"/exchange/v1{path}", json.dumps(body), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return dict(answer)


def _memory(lab: Lab, port: int, pid: int, tokens: list[str], count: int) -> float:
    """Let large messages pass and return the peak of the server's memory in MB."""
    peak = 0.0
    loading = threading.Thread(target=_load, args=(lab, port, "large", count, tokens))
    loading.start()
    while loading.is_alive():
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                peak = max(peak, int(line.split()[1]) / 1024)
        loading.join(0.1)
    return peak


SCENARIO = Scenario(
    "exchange",
    "The exchange",
    "One server process; in three figures, four on one port. Intake: 16 connections send messages "
    "of 10 KiB, three rounds that alternate with 16 threads that only write a temporary file, "
    "call fsync, rename it and call fsync on the folder. Cycles: API_1, API_3 with one reply, "
    "API_4, on 16 databases at once. API_1: one message handed out with 1,000 and with 1,000,000 "
    "waiting, median of 40. Memory: the server's resident set while 1 GiB passes in messages of 1 "
    "MiB. Store: rclone serves a folder on the same disk as an S3 store; three rounds that "
    "alternate with the folder.",
    4 * ROUNDS + 5,
    run,
)
