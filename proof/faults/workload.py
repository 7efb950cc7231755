"""The queues under test, and what clients and driver agree on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from psycopg.conninfo import make_conninfo

from postroad.bridge import RabbitIn, RabbitOut, RabbitRoute
from postroad.bus import Bus
from postroad.bus.schema import BUS
from postroad.cli.components import BRIDGE
from postroad.postgres import install
from proof.history.checkers import Predicate, is_parity

__all__ = [
    "IMPORTS",
    "QUEUES",
    "STEPS",
    "WRITE_EFFECTS",
    "Orders",
    "arriving",
    "bridges",
    "create",
    "dead",
    "imports",
    "unfinished",
]

# Consumers of each queue, and whose copy each of them wants.
QUEUES: Mapping[str, Mapping[str, Predicate | None]] = {
    "orders": {"default": None, "even": is_parity("even")},
    "outbox": {"default": None},
    "groups": {"default": None},
    "later": {"default": None},
    "short": {"default": None},
    # Leased by clients that call lease and ack, and by a worker in lease mode.
    "leases": {"default": None},
    "tasks": {"default": None},
    # Also carried to RabbitMQ, where there is one, and from there into another database. In the
    # same one it would be dropped, because bridges may form circles.
    "exports": {"default": None},
}
IMPORTS = "imports"
STEPS = ("rooms", "ticket", "bill")
SAGA_QUEUES = (*STEPS, *(f"cancel_{step}" for step in STEPS))
# A fault must not make a message dead: it would fail a delivery that is only late.
MAX_ATTEMPTS = 10_000

_TABLES = """
create table proof_effect (
  number bigint generated always as identity primary key,
  queue text not null, consumer text not null, key text not null, iid text not null,
  at double precision not null default extract(epoch from clock_timestamp()),
  began double precision not null default extract(epoch from now()),
  handled double precision not null, "group" text, sequence integer, detail text);
create table proof_outbox (key text primary key);
"""

# One statement for a batch, numbered in the order of the batch.
WRITE_EFFECTS = """
insert into proof_effect (queue, consumer, key, iid, handled, "group", sequence, detail)
select value->>'queue', value->>'consumer', value->>'key', value->>'iid',
  (value->>'handled')::double precision, value->>'group', (value->>'sequence')::integer,
  value->>'detail'
from jsonb_array_elements(%s::jsonb) with ordinality as row (value, place) order by place
"""


@dataclass(frozen=True)
class Orders:
    """What a client needs to know."""

    dsn: str
    folder: str
    seed: int
    # Messages a second of each poster thread.
    rate: float = 50.0
    # Behind a transaction-mode pooler.
    is_pooled: bool = False
    # Addresses of RabbitMQ's nodes; without them no bridge is tried.
    brokers: str = ""

    def bus(self) -> Bus:
        """Open a bus whose calls are transactions of their own."""
        return Bus(self.dsn, listen=not self.is_pooled)


def bridges(dsn: str, brokers: str) -> tuple[RabbitOut, RabbitIn]:
    """Make the bridges to RabbitMQ and back."""
    route = RabbitRoute(queue="exports")
    return (
        RabbitOut("out", source=dsn, url=brokers, queue="exports", route=route),
        RabbitIn("in", url=brokers, target=imports(dsn), queue=IMPORTS, route=route),
    )


def imports(dsn: str) -> str:
    """Return the connection string of the database at the end of the bridges."""
    return make_conninfo(dsn, dbname=IMPORTS)


def create(dsn: str, brokers: str = "") -> None:
    """Install the bus and create queues, tables and bridges."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        install(connection, BUS)
        connection.execute(_TABLES)
        bus = Bus(connection)
        for queue in (*QUEUES, *SAGA_QUEUES):
            bus.create_queue(queue, payload="jsonb")
        bus.create_consumer("orders", "even", "(t.properties->'parity')='even'")
        for queue in (*QUEUES, *SAGA_QUEUES):
            for consumer in QUEUES.get(queue, {"default": None}):
                bus.alter_consumer(
                    queue,
                    consumer,
                    max_attempts=MAX_ATTEMPTS,
                    backoff=timedelta(seconds=0.5),
                    backoff_max=timedelta(seconds=5),
                )
    if brokers:
        _create_bridges(dsn, brokers)


def _create_bridges(dsn: str, brokers: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        install(connection, BRIDGE)
        connection.execute(f"create database {IMPORTS}".encode())
    with psycopg.connect(imports(dsn), autocommit=True) as connection:
        install(connection, BUS)
        install(connection, BRIDGE)
        connection.execute(_TABLES)
        Bus(connection).create_queue(IMPORTS, payload="jsonb")
    for bridge in bridges(dsn, brokers):
        asyncio.run(bridge.install())


def unfinished(connection: psycopg.Connection) -> dict[str, int]:
    """Return what is still to be done: messages by queue, and sagas under way."""
    rows = connection.execute(
        "select queue, sum(depth)::bigint from mbus.status where queue = any (%s)"
        " group by queue having sum(depth) > 0"
        " union all select 'sagas', count(distinct saga_id) from mbus.saga_status"
        " where state not in ('completed', 'compensated') having count(*) > 0",
        ([*QUEUES, *SAGA_QUEUES],),
    ).fetchall()
    return {queue: int(count) for queue, count in rows}


def arriving(dsn: str) -> int:
    """Count the messages that have arrived over the bridges and are not handled yet."""
    with psycopg.connect(imports(dsn)) as connection:
        row = connection.execute("select coalesce(sum(depth + dmq), 0) from mbus.status").fetchone()
        assert row is not None
        return int(row[0])


def dead(connection: psycopg.Connection) -> list[str]:
    """Describe the dead messages; only steps of sagas die, when their partner refuses."""
    rows = connection.execute(
        "select queue || ' ' || iid || ': ' || coalesce(error, '') from mbus.dead"
        " where queue <> all (%s) limit 100",
        (list(STEPS),),
    ).fetchall()
    return [text for (text,) in rows]
