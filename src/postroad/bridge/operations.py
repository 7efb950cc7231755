"""What an operator may do with bridges. Each call may be repeated."""

from __future__ import annotations

import itertools
from typing import Literal

from postroad.bridge import calls
from postroad.bridge.addresses import Addresses
from postroad.bridge.ends import close_inlet, close_outlet, speaking
from postroad.bridge.pump import PumpSettings
from postroad.bridge.register import Bridge, carrier, define, find, load, register
from postroad.settings import BridgeDefinition

__all__ = ["add", "drain", "pause", "remove", "resume", "set_state"]

State = Literal["running", "paused", "draining", "drained"]


async def add(
    addresses: Addresses, definition: BridgeDefinition, name: str | None = None
) -> Bridge:
    """Open both ends of a bridge and register it; without a name it is called like its queue.

    Whoever runs this house's bridges starts it by itself. Raises AddressUnknown, SecretInAddress,
    QueueNotFound, InvalidSelector, PayloadMismatch, BridgeExists.
    """
    addresses.refuse_secret(definition.source)
    addresses.refuse_secret(definition.target)
    known = await load(addresses)
    bridge = define(name or definition.queue, definition, addresses)
    if name is None:
        bridge = _named(bridge, known)
    await carrier(bridge, addresses, PumpSettings()).install()
    await register(addresses, bridge)
    return bridge


def _named(wanted: Bridge, known: list[Bridge]) -> Bridge:
    """Take the name of the queue, or the next free one after it: one queue, several ways."""
    for other in known:
        if wanted.is_same(other):
            return other
    taken = {other.name for other in known}
    names = (f"{wanted.name}_{number}" for number in itertools.count(2))
    name = next(each for each in itertools.chain((wanted.name,), names) if each not in taken)
    return Bridge(
        name,
        wanted.kind,
        wanted.source,
        wanted.target,
        wanted.queue,
        wanted.queue_at_target,
        wanted.selector,
        wanted.options,
    )


async def remove(addresses: Addresses, name: str) -> None:
    """Close both ends and forget the bridge, with what its consumer has not sent.

    Drain it first to lose nothing. Raises BridgeNotFound.
    """
    bridge = await find(addresses, name)
    async with speaking(addresses.home) as connection:
        await connection.execute("select bridge.unregister(%s)", (name,))
    if bridge.kind != "rabbitmq_in":
        await close_outlet(addresses.database(bridge.source), name)
    if bridge.kind != "rabbitmq_out":
        await close_inlet(addresses.database(bridge.target), name)


async def set_state(addresses: Addresses, name: str, state: State) -> str:
    """Set the state of a bridge and return the one it had. Raises BridgeNotFound."""
    bridge = await find(addresses, name)
    async with speaking(addresses.database(bridge.place)) as connection:
        return await calls.set_state(connection, name, state)


async def pause(addresses: Addresses, name: str) -> str:
    """Let a bridge take nothing until it is resumed; what is on its way arrives."""
    return await set_state(addresses, name, "paused")


async def resume(addresses: Addresses, name: str) -> str:
    """Let a bridge go on."""
    return await set_state(addresses, name, "running")


async def drain(addresses: Addresses, name: str) -> str:
    """Let a bridge carry what is there; it then is drained and takes nothing more."""
    return await set_state(addresses, name, "draining")
