"""The bridges between the buses of a Writer, a Coordinator and Readers.

| queue | from | to |
|---|---|---|
| `co_events` | Writer | Coordinator |
| `co_votes` | every Reader | Coordinator |
| `co_decide` | Coordinator | Writer, every Reader |

Roles that share a database need no bridge between them. Names are short because a bridge's
consumer, its queue and its database together name a role, which has at most 63 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroad.bridge.database import DatabaseBridge
from postroad.bridge.service import PumpSettings
from postroad.coordination import calls
from postroad.postgres.connections import connect_async


def writer_bridges(writer: str, coordinator: str) -> list[DatabaseBridge]:
    """Create the bridges between a Writer and its Coordinator; none is started."""
    return _joined(
        ("c_main", writer, coordinator, calls.EVENTS),
        ("c_writer", coordinator, writer, calls.DECISIONS),
    )


def reader_bridges(name: str, reader: str, coordinator: str) -> list[DatabaseBridge]:
    """Create the bridges of a Reader, for votes and decisions; none is started."""
    return _joined(
        ("c_main", reader, coordinator, calls.VOTES),
        (f"c_{name}", coordinator, reader, calls.DECISIONS),
    )


def make_bridges(writer: str, coordinator: str, readers: Mapping[str, str]) -> list[DatabaseBridge]:
    """Create the bridges between a Writer, a Coordinator and Readers by name; none is started."""
    found = writer_bridges(writer, coordinator)
    for name, reader in readers.items():
        found += reader_bridges(name, reader, coordinator)
    return found


async def install_bridges(bridges: list[DatabaseBridge]) -> None:
    """Create both ends of each bridge; repeatable. Each database must already have its role."""
    for bridge in bridges:
        await bridge.install()
        async with await connect_async(bridge.source) as connection:
            await connection.execute("select coordination.drop_idle_consumer(%s)", (bridge.queue,))


def _joined(*bridges: tuple[str, str, str, str]) -> list[DatabaseBridge]:
    # One connection is enough: each message carries many events, so there are few messages.
    settings = PumpSettings(connections=1)
    return [
        DatabaseBridge(name, source=source, target=target, queue=queue, settings=settings)
        for name, source, target, queue in bridges
        if source != target
    ]
