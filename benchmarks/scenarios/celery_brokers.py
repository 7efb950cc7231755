"""Celery on mbus://, beside Kombu's own transports for PostgreSQL, RabbitMQ and Redis."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.lab import Lab
from benchmarks.peers.install import NotInstalled, installed_peer, installed_peers
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.rounds import interleave, median, ratio, thousands

ROUNDS = 3
TASKS = 3_000
# The peers are slower; these are enough for several seconds each.
SLOW_TASKS = 400
OURS = "mbus://"
# As RabbitMQ without confirms: a publish returns before the task is on disk.
RELAXED = "mbus:// with synchronous_commit=off"
NOT_WAITING = quote("-c synchronous_commit=off")
# As durable as ours: a publish returns when the broker has stored the task.
CONFIRMED = "RabbitMQ with publisher confirms"
# A crash of the server loses up to a second of tasks; with everysec, that is the usual setting.
REDIS = "Redis with appendfsync everysec"


def run(lab: Lab) -> Findings:
    """Run the same application on each broker, in turns."""
    # Servers of the tests, whose fixtures start and end them privately.
    from tests.fixtures.rabbitmq import RabbitServer
    from tests.fixtures.redis import redis_server

    lab.report("installing the peers")
    peers = installed_peers(lab.root)
    redis_package = installed_peer(lab.root, "redis", ("redis",))
    redis_program = shutil.which("redis-server")
    if redis_program is None:
        raise NotInstalled("redis-server is not installed")
    with psycopg.connect(lab.dsn, autocommit=True) as connection:
        connection.execute((peers / "pgmq" / "sql" / "pgmq.sql").read_bytes())
    folder = Path(tempfile.mkdtemp(prefix="postroad-bench-rabbitmq-"))
    rabbit = RabbitServer(folder / "rabbitmq")
    rabbit.start()
    durable = ("--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(folder))
    pickups: dict[str, list[float]] = {}
    address = address_of(lab.dsn)
    dsn = {"conn_string": lab.dsn, "init_extension": False}

    def arm(name: str, url: str, tasks: int, options: dict[str, Any], path: Path | None) -> Any:
        def measure() -> float:
            result = _measure(lab, url, lab.scaled(tasks, 100), options, path)
            pickups.setdefault(name, []).extend(result["pickups"])
            return float(result["rate"])

        return measure

    arms = {
        OURS: arm(OURS, f"mbus{address}", TASKS, {}, None),
        RELAXED: arm(RELAXED, f"mbus{address}&options={NOT_WAITING}", TASKS, {}, None),
        "RabbitMQ": arm("RabbitMQ", rabbit.url, TASKS, {}, None),
        CONFIRMED: arm(CONFIRMED, rabbit.url, TASKS, {"confirm_publish": True}, None),
        "pgmq://": arm("pgmq://", "pgmq://localhost/ignored", SLOW_TASKS, dsn, peers),
        "SQLAlchemy": arm("SQLAlchemy", f"sqla+postgresql+psycopg{address}", SLOW_TASKS, {}, None),
    }
    try:
        with redis_server(redis_program, *durable) as redis:
            arms[REDIS] = arm(REDIS, redis, TASKS, {}, redis_package)
            rates = interleave(lab, ROUNDS, arms)
    finally:
        rabbit.close()
        shutil.rmtree(folder, ignore_errors=True)
    bars = {"pgmq://": 2.0, "SQLAlchemy": 2.0, "RabbitMQ": 1.0, CONFIRMED: 1.0, REDIS: None}
    pairs = [*((OURS, peer, bar) for peer, bar in bars.items()), (RELAXED, "RabbitMQ", 1.0)]
    figures = [
        Figure(
            f"Celery tasks on {name}, beside {peer}",
            thousands(median(rates, name)),
            f"{peer} {thousands(median(rates, peer))}",
            ratio(rates, name, peer),
            "x",
            at_least(bar) if bar else None,
        )
        for name, peer, bar in pairs
    ]
    idle = {name: statistics.median(values) for name, values in pickups.items()}
    figures.append(
        Figure(
            "the same, pick-up of a task by an idle worker, median",
            f"{idle[OURS]:.1f} ms",
            ", ".join(f"{name} {idle[name]:.1f} ms" for name in bars),
            idle[OURS],
            "ms",
            at_most(5),
        )
    )
    lab.report("a worker is killed")
    seconds = float(_run(lab, "kill_celery", [], f"mbus{address}", {}, None))
    figures.append(
        Figure(
            "the same, kill -9 of the worker until another has its task",
            f"{seconds:.1f} s",
            "",
            seconds,
            "s",
            at_most(10),
        )
    )
    return Findings(figures, {"rates": rates, "pickups_ms": pickups, "redelivery_s": seconds})


def _measure(
    lab: Lab, url: str, tasks: int, options: dict[str, Any], peers: Path | None
) -> dict[str, Any]:
    lab.checkpoint()
    said = _run(lab, "run_celery", [str(tasks)], url, options, peers)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def _run(
    lab: Lab,
    module: str,
    arguments: list[str],
    url: str,
    options: dict[str, Any],
    peers: Path | None,
) -> str:
    path = os.pathsep.join(map(str, filter(None, (lab.root / "src", lab.root, peers))))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peers.{module}", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "BENCHMARK_BROKER": url,
            "BENCHMARK_OPTIONS": json.dumps(options),
            "BENCHMARK_QUEUE": f"ticks_{os.urandom(4).hex()}",
        },
        cwd=lab.root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{url} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def address_of(dsn: str) -> str:
    where = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    user = ":".join(where[part] for part in ("user", "password") if part in where)
    return f"://{user}@/{where['dbname']}?host={where['host']}&port={where['port']}"


SCENARIO = Scenario(
    "celery",
    "Celery on the bus",
    "One Celery application, a worker with 2 processes and prefetch 4 each, no results, 3 rounds: "
    "tasks (400 on pgmq:// and SQLAlchemy, 3,000 on the others) that append a byte to a file, "
    "published one by one by another process while the worker runs. Tasks a second from the first "
    "publish to the last task done, or to the end of 20 seconds. pgmq:// and SQLAlchemy are "
    "Kombu's own transports with their defaults, pgmq as its SQL; RabbitMQ with its defaults, "
    "once without and once with publisher confirms; mbus:// once more with options=-c "
    "synchronous_commit=off in its URL, which returns from a publish as early as RabbitMQ does "
    "without confirms; Redis with an append-only file. Pick-up: 20 tasks in each round, each "
    "published after an idle tenth of a second, timed until the byte is written. Finally a worker "
    "is killed with -9 in the middle of a task with acks_late while another one is idle.",
    ROUNDS * 7 + 2,
    run,
)
