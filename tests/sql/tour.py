"""The tour of the saga tests: a room, two flights after it, a transfer after each flight."""

from __future__ import annotations

import json
from typing import Any

from psycopg import Connection

from tests.sql.calls import column, one, rows

# Step: its queue, its predecessors.  Both tickets go to one queue.
FORWARD: dict[str, tuple[str, tuple[str, ...]]] = {
    "rooms": ("rooms_reservations", ()),
    "ticket_to": ("book_tickets", ("rooms",)),
    "ticket_from": ("book_tickets", ("rooms",)),
    "transfer_to": ("transfers_to", ("ticket_to",)),
    "transfer_from": ("transfers_from", ("ticket_from",)),
}
UNDO = {step: f"cancel_{step}" for step in FORWARD}
QUEUES = sorted({queue for queue, _ in FORWARD.values()} | set(UNDO.values()))


def tour_steps() -> list[dict[str, Any]]:
    return [
        {"name": step, "do": queue, "undo": UNDO[step], "after": list(after)}
        for step, (queue, after) in FORWARD.items()
    ]


def create_tour_queues(connection: Connection, **options: str) -> None:
    for queue in QUEUES:
        connection.execute("select mbus.create_queue(%s, ncons => 2)", (queue,))


def start_tour(connection: Connection, **options: Any) -> int:
    """Start a tour and return its id."""
    named = "".join(f", {name} => %({name})s" for name in options)
    found = connection.execute(
        f"select mbus.create_saga('tour', %(steps)s{named})".encode(),
        {"steps": json.dumps(tour_steps()), **options},
    ).fetchone()
    assert found is not None
    return found[0]


def consume(connection: Connection, queue: str) -> dict[str, str] | None:
    """Take one message and return its headers, with its iid."""
    found = connection.execute(
        f"select iid, hstore_to_json(headers) from mbus.consume_{queue}_by_default()".encode()
    ).fetchone()
    return None if found is None else {**found[1], "iid": found[0]}


def consume_step(connection: Connection, step: str, saga: int | None = None) -> dict[str, str]:
    """Take the forward message of a step; in a queue of two steps the other one is let go."""
    queue = FORWARD[step][0]
    iid = one(
        connection,
        "select do_iid from mbus.saga_status where step = %s and saga_id = coalesce(%s, saga_id)"
        " order by saga_id desc limit 1",
        step,
        saga,
    )
    found = connection.execute(
        f"select iid, hstore_to_json(headers) from mbus.take_from_{queue}_by_default(%s)".encode(),
        (iid,),
    ).fetchone()
    assert found is not None, step
    return {**found[1], "iid": found[0]}


def saga_state(connection: Connection, saga: int) -> str:
    return one(connection, "select distinct state from mbus.saga_status where saga_id = %s", saga)


def steps(connection: Connection, saga: int) -> dict[str, str]:
    return dict(
        rows(
            connection,
            "select step, step_state from mbus.saga_status where saga_id = %s order by position",
            saga,
        )
    )


def ready(connection: Connection) -> list[str]:
    """Name the queues with a message that could be taken now."""
    return column(connection, "select queue from mbus.status where ready > 0 order by queue")


def left(connection: Connection) -> dict[str, int]:
    """Count what lies anywhere: on rings, delayed, leased, dead, blocked, waiting, noted."""
    counts = {
        f"{queue} {place}": number
        for queue, *numbers in rows(
            connection, "select queue, ready, delayed, leased, dmq from mbus.status"
        )
        for place, number in zip(("ready", "delayed", "leased", "dmq"), numbers, strict=True)
    }
    counts["blocked"] = one(
        connection, "select count(*) from mbus.blocked where released_by is null"
    )
    counts["wait"] = one(
        connection,
        "select count(*) from mbus.wait w join mbus.blocked b on b.id = w.blocked_id"
        " where b.released_by is null",
    )
    counts["note"] = one(connection, "select count(*) from mbus.saga_note")
    return {what: number for what, number in counts.items() if number}
