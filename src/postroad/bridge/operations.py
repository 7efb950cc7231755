"""What an operator may do with bridges. Each call may be repeated."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Literal

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import call, transact
from postroad.bridge.registry import Bridge, define, find, load, make_service, register
from postroad.bridge.service import PumpSettings
from postroad.bridge.status import status
from postroad.settings import BridgeDefinition

State = Literal["running", "paused", "draining", "drained"]


async def add(
    addresses: Addresses, definition: BridgeDefinition, name: str | None = None
) -> Bridge:
    """Open both ends of a bridge and register it; the default name is that of its queue.

    The process that runs the bridges starts it within seconds. Raises AddressUnknown,
    SecretInAddress, QueueNotFound, InvalidSelector, PayloadMismatch, BridgeExists.
    """
    addresses.refuse_secret(definition.source)
    addresses.refuse_secret(definition.target)
    known = await load(addresses)
    bridge = define(name or definition.queue, definition, addresses)
    if name is None:
        bridge = _named(bridge, known)
    await make_service(bridge, addresses, PumpSettings()).install()
    await register(addresses, bridge)
    return bridge


def _named(wanted: Bridge, known: list[Bridge]) -> Bridge:
    """Name a bridge after its queue, with a number if the name is taken."""
    for other in known:
        if wanted.is_same(other):
            return other
    taken = {other.name for other in known}
    names = (f"{wanted.name}_{number}" for number in itertools.count(2))
    name = next(each for each in itertools.chain((wanted.name,), names) if each not in taken)
    return replace(wanted, name=name)


async def remove(addresses: Addresses, name: str, *, is_dry_run: bool = False) -> dict[str, Any]:
    """Remove both ends of a bridge and its definition. Drain it first.

    Raises BridgeNotFound.

    Example: postroad bridge remove orders --dry-run
    """
    bridge = await find(addresses, name)
    (now,) = await status(addresses, name)
    lost = 0 if bridge.kind == "rabbitmq_in" else now.lag or 0
    if is_dry_run:
        return {"bridge": name, "messages_lost": lost}
    async with transact(addresses.home) as connection:
        await call(connection, "unregister", name)
    if bridge.kind != "rabbitmq_in":
        async with transact(addresses.database(bridge.source)) as connection:
            await call(connection, "close_outlet", name)
    if bridge.kind != "rabbitmq_out":
        async with transact(addresses.database(bridge.target)) as connection:
            await connection.execute(
                "select bridge.close_inlet(i.name, i.source) from bridge.inlets i"
                " where i.name = %s",
                (name,),
            )
    return {"bridge": name, "messages_lost": lost}


async def set_state(addresses: Addresses, name: str, state: State) -> str:
    """Set the state of a bridge and return the previous one. Raises BridgeNotFound."""
    bridge = await find(addresses, name)
    async with transact(addresses.database(bridge.place)) as connection:
        return str(await call(connection, "set_state", name, state))
