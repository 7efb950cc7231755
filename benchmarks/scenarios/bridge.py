"""A bridge between two databases, beside taking and posting in one of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.lab import Lab
from benchmarks.maintenance import Maintainer
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import PAYLOAD
from postroad.bridge import DatabaseBridge
from postroad.bus import AsyncBus
from postroad.cli.components import BRIDGE, BUS
from postroad.postgres import install

ROUNDS = 3
MESSAGES = 100_000
BATCH = 1000


def run(lab: Lab) -> Findings:
    """Alternate between crossing and moving inside one database."""
    count = lab.scaled(MESSAGES, 10_000)
    install(lab.connection, BRIDGE)
    with _second(lab) as other, Maintainer(other):
        rates = interleave(
            lab,
            ROUNDS,
            {
                "bridge": lambda: _cross(lab, other, count),
                "one database, AsyncBus": lambda: asyncio.run(_move(lab, count)),
                "one database, one statement": lambda: _move_inside(lab, count),
            },
        )
    rate = median(rates, "bridge")
    beside = ratio(rates, "bridge", "one database, AsyncBus")
    inside = ratio(rates, "bridge", "one database, one statement")
    return Findings(
        [
            Figure(
                "bridge between two databases",
                thousands(rate, " msg/s"),
                f"take and post in one database by AsyncBus"
                f" {thousands(median(rates, 'one database, AsyncBus'), ' msg/s')}",
                judged=beside,
                unit="x",
                bar=at_least(0.5),
            ),
            Figure(
                "the same",
                thousands(rate, " msg/s"),
                f"in one statement of one database, nothing leaving the server"
                f" {thousands(median(rates, 'one database, one statement'), ' msg/s')}",
                judged=inside,
                unit="x",
            ),
        ],
        {"rates": rates},
    )


@contextmanager
def _second(lab: Lab) -> Iterator[str]:
    """Make another database on the same server."""
    name = f"{conninfo_to_dict(lab.dsn)['dbname']}_2"
    lab.connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = make_conninfo(lab.dsn, dbname=name)
    try:
        with psycopg.connect(dsn) as connection:
            install(connection, BUS)
            install(connection, BRIDGE)
        yield dsn
    finally:
        lab.connection.execute(
            sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
        )


def _fill(lab: Lab, queue: str, count: int) -> None:
    statement = (
        f"select mbus.postn_{queue}(array_fill('{PAYLOAD}'::text, array[{BATCH}]))"
        f" from generate_series(1, {count // BATCH})"
    )
    lab.execute(statement)
    lab.checkpoint()


async def _install(source: str, target: str, queue: str) -> None:
    await DatabaseBridge(queue, source=source, target=target, queue=queue).install()


def _cross(lab: Lab, other: str, count: int) -> float:
    """Carry a backlog over, in a process of its own as in production, and return the rate."""
    queue = lab.new_queue("text")
    asyncio.run(_install(lab.dsn, other, queue))
    # Its own consumer alone: the default one would only be a second copy to write.
    lab.execute(f"select mbus.drop_consumer('{queue}', 'default')")
    _fill(lab, queue, count)
    carried = subprocess.run(
        [sys.executable, "-m", "benchmarks.carrier", lab.dsn, other, queue, str(count)],
        env={**os.environ, "PYTHONPATH": f"{lab.root}/src:{lab.root}"},
        cwd=lab.root,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(f"select mbus.drop_queue('{queue}')".encode())
    lab.drop_queue(queue)
    return count / float(carried.stdout)


async def _move(lab: Lab, count: int) -> float:
    """Take and post with the client, one transaction per batch."""
    source, target = lab.new_queue("text"), lab.new_queue("text")
    _fill(lab, source, count)
    began = time.perf_counter()
    async with await psycopg.AsyncConnection.connect(lab.dsn) as connection:
        bus = AsyncBus(connection)
        while messages := await bus.consume(source, amount=BATCH):
            await bus.post_many(
                target, [each.data for each in messages], [each.headers for each in messages]
            )
            await connection.commit()
    seconds = time.perf_counter() - began
    lab.drop_queue(source)
    lab.drop_queue(target)
    return count / seconds


def _move_inside(lab: Lab, count: int) -> float:
    """Take and post in one statement, one transaction per batch."""
    source, target = lab.new_queue("text"), lab.new_queue("text")
    _fill(lab, source, count)
    statement = (
        f"select mbus.postn_{target}(array_agg(data), array_agg(headers)) is null"
        f" from mbus.consumen_{source}_by_default({BATCH}) having count(*) > 0"
    )
    began = time.perf_counter()
    while lab.connection.execute(statement.encode()).fetchone() is not None:
        pass
    seconds = time.perf_counter() - began
    lab.drop_queue(source)
    lab.drop_queue(target)
    return count / seconds


SCENARIO = Scenario(
    "bridge",
    "A bridge between two databases",
    "Two databases on one server, 100,000 messages of 200 bytes waiting; time until the last one "
    "is committed at both ends, the bridge runs in a separate process with its defaults (batches "
    "of 4,000, three connections). For comparison, in the same rounds: one AsyncBus that takes "
    "1,000 and posts them with their headers into another queue of the same database in one "
    "transaction; and the same in one SQL statement, where the messages do not leave the server. "
    "The bar is 50,000 msg/s, or half the rate of taking and posting in one database.",
    3 * ROUNDS,
    run,
)
