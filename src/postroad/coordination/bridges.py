"""Joining the buses of the room's databases: who hears whom.

| queue | from | to |
|---|---|---|
| `co_events` | Writer | Coordinator, every Reader |
| `co_votes` | every Reader | Coordinator |
| `co_decide` | Coordinator | Writer, every Reader |

Parts that share a database need no bridge between them. Names are short because a bridge's
consumer, its queue and its database together name a role, which has 63 bytes at most.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroad.bridge.database import DatabaseBridge
from postroad.bridge.pump import PumpSettings
from postroad.coordination import calls
from postroad.postgres.connections import connect_async

__all__ = ["EntityBridge", "install_bridges", "make_bridges", "reader_bridges", "writer_bridges"]


def writer_bridges(writer: str, coordinator: str) -> list[EntityBridge]:
    """Make the bridges between a Writer and its Coordinator; none is started."""
    return _joined(
        ("c_main", writer, coordinator, calls.EVENTS),
        ("c_writer", coordinator, writer, calls.DECISIONS),
    )


def reader_bridges(name: str, reader: str, writer: str, coordinator: str) -> list[EntityBridge]:
    """Make the bridges that a Reader needs: to hear of events and decisions, and to be heard."""
    return _joined(
        (f"c_{name}", writer, reader, calls.EVENTS),
        ("c_main", reader, coordinator, calls.VOTES),
        (f"c_{name}", coordinator, reader, calls.DECISIONS),
    )


def make_bridges(writer: str, coordinator: str, readers: Mapping[str, str]) -> list[EntityBridge]:
    """Make the bridges between a Writer, a Coordinator and Readers by name; none is started."""
    found = writer_bridges(writer, coordinator)
    for name, reader in readers.items():
        found += reader_bridges(name, reader, writer, coordinator)
    return found


async def install_bridges(bridges: list[EntityBridge]) -> None:
    """Open both ends of each bridge; repeatable. Each database must know its part before."""
    for bridge in bridges:
        await bridge.install()
        connection = await connect_async(bridge.source, autocommit=True)
        try:
            await connection.execute("select coordination.drop_idle_consumer(%s)", (bridge.queue,))
        finally:
            await connection.close()


def _joined(*ways: tuple[str, str, str, str]) -> list[EntityBridge]:
    return [
        EntityBridge(name, source=source, target=target, queue=queue)
        for name, source, target, queue in ways
        if source != target
    ]


class EntityBridge(DatabaseBridge):
    """A bridge that remembers where it begins."""

    def __init__(self, name: str, *, source: str, target: str, queue: str) -> None:
        # One hand: messages are few, since each carries many events, and sessions are not free.
        super().__init__(
            name, source=source, target=target, queue=queue, settings=PumpSettings(hands=1)
        )
        self.source = source
