"""Triggers, temporary queues and temporary consumers as calls. Pure, like the others.

A temporary queue belongs to the session that made it, so its calls need the caller's connection: a
pool gives each call another one.
"""

from __future__ import annotations

from datetime import timedelta

from postroad.bus import payload as payloads
from postroad.bus import rows
from postroad.bus.calls import Call
from postroad.bus.errors import InvalidArgument
from postroad.bus.message import Message
from postroad.bus.payload import Payload


def create_trigger(source: str, destination: str, selector: str | None) -> Call[None]:
    """Build the call of mbus.create_trigger."""
    return Call(
        "select mbus.create_trigger(src_queue_name => %s, dst_queue_name => %s, selector => %s)",
        (source, destination, selector),
        rows.nothing,
    )


def drop_trigger(source: str, destination: str) -> Call[None]:
    """Build the call of mbus.drop_trigger."""
    return Call(
        "select mbus.drop_trigger(src_queue_name => %s, dst_queue_name => %s)",
        (source, destination),
        rows.nothing,
    )


def no_session() -> InvalidArgument:
    """Make the error of a call that needs a session."""
    return InvalidArgument(
        "a temporary queue belongs to a session, and a pool has many",
        hint="use bus.using(connection), and keep the connection as long as the queue",
    )


def create_temporary_queue(payload: Payload) -> Call[str]:
    """Build the call of mbus.create_temporary_queue."""
    payloads.check(payload)
    if payload == "hstore":
        # The default; naming the type would ask for its schema in the caller's search path.
        return Call("select mbus.create_temporary_queue()", (), rows.value)
    return Call(
        "select mbus.create_temporary_queue(payload => %s::regtype)", (payload,), rows.value
    )


def create_temporary_consumer(queue: str, selector: str | None) -> Call[str]:
    """Build the call of mbus.create_temporary_consumer."""
    return Call(
        "select mbus.create_temporary_consumer(qname => %s, selector => %s)",
        (queue, selector),
        rows.value,
    )


def consume_temporary(
    name: str, payload: Payload, amount: int, wait: timedelta
) -> Call[list[Message]]:
    """Build the call of mbus.consume_temporary, or of its kin for another payload."""
    payloads.check(payload)
    function = "consume_temporary" + ("" if payload == "hstore" else f"_{payload}")
    return Call(
        rows.select(Message, f"mbus.{function}(qname => %s, amt => %s, wait => %s)"),
        (name, amount, wait),
        rows.messages(payload),
        name,
        # A temporary queue has no dmq.
        remove=lambda _: None,
    )


def clear_tempq() -> Call[int]:
    """Build the call of mbus.clear_tempq."""
    return Call("select mbus.clear_tempq()", (), rows.value)
