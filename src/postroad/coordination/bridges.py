"""Joining the buses of the room's databases: who hears whom.

| queue | from | to |
|---|---|---|
| `entity_events` | Writer | Coordinator, every Reader |
| `entity_votes` | every Reader | Coordinator |
| `entity_decisions` | Coordinator | Writer, every Reader |

Parts that share a database need no bridge between them.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroad.bridge.database import DatabaseBridge
from postroad.coordination import calls
from postroad.postgres.connections import connect_async

__all__ = ["install_bridges", "make_bridges"]


def make_bridges(
    writer: str, coordinator: str, readers: Mapping[str, str]
) -> list[DatabaseBridge]:
    """Make the bridges between a Writer, a Coordinator and Readers by name; none is started."""
    found: list[DatabaseBridge] = []

    def join(name: str, source: str, target: str, queue: str) -> None:
        if source != target:
            found.append(DatabaseBridge(name, source=source, target=target, queue=queue))

    join("events_coordinator", writer, coordinator, calls.EVENTS)
    join("decisions_writer", coordinator, writer, calls.DECISIONS)
    for name, reader in readers.items():
        join(f"events_{name}", writer, reader, calls.EVENTS)
        join(f"votes_{name}", reader, coordinator, calls.VOTES)
        join(f"decisions_{name}", coordinator, reader, calls.DECISIONS)
    return found


async def install_bridges(bridges: list[DatabaseBridge]) -> None:
    """Open both ends of each bridge; repeatable."""
    for bridge in bridges:
        await bridge.install()
        connection = await connect_async(bridge._source, autocommit=True)
        try:
            await connection.execute("select coordination.drop_idle_consumer(%s)", (bridge.queue,))
        finally:
            await connection.close()
