"""The registered bridges, and the service of each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from postroad.bridge.addresses import Addresses, Kind
from postroad.bridge.calls import call, transact
from postroad.bridge.database import DatabaseBridge
from postroad.bridge.errors import BridgeNotFound
from postroad.bridge.rabbit import RabbitRoute
from postroad.bridge.rabbit_in import RabbitIn
from postroad.bridge.rabbit_out import RabbitOut
from postroad.bridge.service import BridgeService, PumpSettings
from postroad.settings import BridgeDefinition


@dataclass(frozen=True, slots=True)
class Bridge:
    """A registered bridge (table bridge.bridge).

    `source` and `target` are names or addresses of databases or brokers, `queue` is at the source;
    without a selector every message crosses. `options` are the route at RabbitMQ. `created_at` is
    None for a bridge that is only in the settings.
    """

    name: str
    kind: Kind
    source: str
    target: str
    queue: str
    queue_at_target: str
    selector: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None

    @property
    def place(self) -> str:
        """The name or address of the database that keeps its state."""
        return self.target if self.kind == "rabbitmq_in" else self.source

    def is_same(self, other: Bridge) -> bool:
        """Check whether two bridges have the same definition, whatever their names."""
        return replace(self, name=other.name, created_at=other.created_at) == other


def define(name: str, definition: BridgeDefinition, addresses: Addresses) -> Bridge:
    """Create a bridge from a definition in the settings or of a command."""
    kind = addresses.kind(definition.source, definition.target)
    facts = definition.model_dump()
    shared = {fact: facts.pop(fact) for fact in ("source", "target", "queue", "selector")}
    queue_at_target = facts.pop("queue_at_target") or definition.queue
    # The remaining keys describe the route at RabbitMQ.
    options = {"kind": facts.pop("queue_kind"), **facts} if kind != "database" else {}
    return Bridge(name, kind, queue_at_target=queue_at_target, options=options, **shared)


def make_service(bridge: Bridge, addresses: Addresses, settings: PumpSettings) -> BridgeService:
    """Make the service of a bridge, not started."""
    if bridge.kind == "rabbitmq_in":
        return RabbitIn(
            bridge.name,
            url=addresses.broker(bridge.source),
            target=addresses.database(bridge.target),
            queue=bridge.queue_at_target,
            route=RabbitRoute(queue=bridge.queue, **bridge.options),
            settings=settings,
        )
    out: dict[str, Any] = {
        "source": addresses.database(bridge.source),
        "queue": bridge.queue,
        "selector": bridge.selector,
        "settings": settings,
    }
    if bridge.kind == "rabbitmq_out":
        route = RabbitRoute(queue=bridge.queue_at_target, **bridge.options)
        return RabbitOut(bridge.name, url=addresses.broker(bridge.target), route=route, **out)
    target, queue = addresses.database(bridge.target), bridge.queue_at_target
    return DatabaseBridge(bridge.name, target=target, queue_at_target=queue, **out)


async def load(addresses: Addresses) -> list[Bridge]:
    """List the registered bridges by name."""
    async with transact(addresses.home) as connection:
        cursor = connection.cursor(row_factory=class_row(Bridge))
        await cursor.execute(
            "select name, kind, source, target, queue, queue_at_target, selector, options,"
            " created_at from bridge.bridge order by name"
        )
        return await cursor.fetchall()


async def find(addresses: Addresses, name: str) -> Bridge:
    """Find a registered bridge. Raises BridgeNotFound."""
    for bridge in await load(addresses):
        if bridge.name == name:
            return bridge
    raise BridgeNotFound(
        f"no bridge is called {name!r}", hint="`postroad bridge list` shows them", bridge=name
    )


async def register(addresses: Addresses, bridge: Bridge) -> None:
    """Register a bridge; idempotent. Raises BridgeExists."""
    facts = (bridge.kind, bridge.source, bridge.target, bridge.queue, bridge.queue_at_target)
    options = Jsonb(bridge.options)
    async with transact(addresses.home) as connection:
        await call(connection, "register", bridge.name, *facts, bridge.selector, options)
