"""The register of bridges, and the service that each of them is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from postroad.bridge.addresses import Addresses, Kind
from postroad.bridge.database import DatabaseBridge
from postroad.bridge.ends import speaking
from postroad.bridge.errors import BridgeNotFound
from postroad.bridge.pump import PumpSettings
from postroad.bridge.rabbit_in import RabbitIn
from postroad.bridge.rabbit_out import RabbitOut
from postroad.bridge.rabbit_topology import RabbitRoute
from postroad.settings import BridgeDefinition, BridgeSettings

__all__ = ["Bridge", "Carrier", "carrier", "find", "load", "pump_settings", "register"]

Carrier = DatabaseBridge | RabbitOut | RabbitIn


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge as it is registered (table bridge.bridge).

    Attributes:
        name: its name in this house.
        kind: database, rabbitmq_out or rabbitmq_in.
        source: name or address of the database or broker that messages come from.
        target: name or address of the one that they go to.
        queue: the queue at the source.
        queue_at_target: the queue at the target; of RabbitMQ as well.
        selector: which messages cross; None lets all.
        options: the route at RabbitMQ.
        created_at: when it was registered; None when it stands in the settings.
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
        """Tell whether two bridges do the same, whatever they are called."""
        mine, theirs = asdict(self), asdict(other)
        return all(mine[key] == theirs[key] for key in mine if key not in ("name", "created_at"))


def define(name: str, definition: BridgeDefinition, addresses: Addresses) -> Bridge:
    """Make a bridge from what the settings or a command say."""
    kind = addresses.kind(definition.source, definition.target)
    options = {}
    if kind != "database":
        options = {
            "exchange": definition.exchange,
            "exchange_kind": definition.exchange_kind,
            "routing_key": definition.routing_key,
            "binding_key": definition.binding_key,
            "kind": definition.queue_kind,
        }
    return Bridge(
        name,
        kind,
        definition.source,
        definition.target,
        definition.queue,
        definition.queue_at_target or definition.queue,
        definition.selector,
        options,
    )


def pump_settings(settings: BridgeSettings) -> PumpSettings:
    """Read how bridges work from the settings."""
    return PumpSettings(
        batch_messages=settings.batch_messages,
        batch_bytes=settings.batch_bytes,
        hands=settings.hands,
        keep=settings.keep,
    )


def carrier(bridge: Bridge, addresses: Addresses, settings: PumpSettings) -> Carrier:
    """Make the service of a bridge, not started."""
    if bridge.kind == "database":
        return DatabaseBridge(
            bridge.name,
            source=addresses.database(bridge.source),
            target=addresses.database(bridge.target),
            queue=bridge.queue,
            queue_at_target=bridge.queue_at_target,
            selector=bridge.selector,
            settings=settings,
        )
    if bridge.kind == "rabbitmq_out":
        # With an exchange of its own the queue there may be somebody else's affair.
        route = RabbitRoute(queue=bridge.queue_at_target, **bridge.options)
        return RabbitOut(
            bridge.name,
            source=addresses.database(bridge.source),
            url=addresses.broker(bridge.target),
            queue=bridge.queue,
            route=route,
            selector=bridge.selector,
            settings=settings,
        )
    return RabbitIn(
        bridge.name,
        url=addresses.broker(bridge.source),
        target=addresses.database(bridge.target),
        queue=bridge.queue_at_target,
        route=RabbitRoute(queue=bridge.queue, **bridge.options),
        settings=settings,
    )


async def load(addresses: Addresses) -> list[Bridge]:
    """List the registered bridges by name."""
    async with speaking(addresses.home) as connection:
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
    """Note a bridge; the same again changes nothing. Raises BridgeExists."""
    async with speaking(addresses.home) as connection:
        await connection.execute(
            "select bridge.register(%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                bridge.name,
                bridge.kind,
                bridge.source,
                bridge.target,
                bridge.queue,
                bridge.queue_at_target,
                bridge.selector,
                Jsonb(bridge.options),
            ),
        )
