"""Every call of the bus, written once, as a value: text, parameters, and how to read the rows.

Nothing here does any input or output. `Bus` and `AsyncBus` run these values; so do the workers.
Functions of a queue are called by their own names (`mbus.post_orders`), because their plans are
static and their rights are the queue's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from postroad import trace
from postroad.bus import parameters, rows
from postroad.bus import payload as payloads
from postroad.bus.decoding import BadRow, Undecodable, log_undecodable
from postroad.bus.errors import InvalidArgument
from postroad.bus.hstore import Hstore
from postroad.bus.message import Lease, Leased, LeasedMessage, Message
from postroad.bus.parameters import (
    Duration,
    Hstores,
    function,
    length,
    length_or_none,
    queue_of,
)
from postroad.bus.payload import Payload
from postroad.bus.rows import Row
from postroad.bus.status import Maintained

T = TypeVar("T")

logger = logging.getLogger(__name__)

CHUNK_MESSAGES = 1_000
LEASE_DEFAULT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One statement; `queue` and `consumer` are whom it is about, for the errors.

    `remove` builds the call that dead-letters a message which cannot be decoded; None drops it.
    An atomic call must not be committed before its result could be read.
    """

    text: str
    parameters: Sequence[object]
    read: Callable[[list[Row]], T]
    queue: str | None = None
    consumer: str | None = None
    remove: Callable[[BadRow], Call[Any] | None] | None = None
    is_atomic: bool = False

    def removals(self, error: Undecodable) -> Iterator[Call[Any]]:
        """Build the calls that dead-letter what cannot be decoded; raise the error without one."""
        if self.remove is None:
            raise error
        for bad in error.bad:
            facts = {"queue": self.queue, "consumer": self.consumer}
            log_undecodable(logger, bad, facts)
            removal = self.remove(bad)
            if removal is not None:
                yield removal


# Queues and consumers.


def describe(queue: str) -> Call[str | None]:
    """Look a queue's payload up; None when there is no such queue."""
    return Call("select payload::text from mbus.queues where queue = %s", (queue,), rows.first)


def create_queue(
    queue: str, ncons: int, is_roles_security_model: bool, payload: Payload
) -> Call[None]:
    """Build the call of mbus.create_queue."""
    payloads.check(payload)
    text = "select mbus.create_queue(qname => %s, ncons => %s, is_roles_security_model => %s"
    if payload == "hstore":
        # The default; naming the type would ask for its schema in the caller's search path.
        return Call(text + ")", (queue, ncons, is_roles_security_model), rows.nothing)
    return Call(
        text + ", payload => %s::regtype)",
        (queue, ncons, is_roles_security_model, payload),
        rows.nothing,
    )


def alter_queue(queue: str, is_roles_security_model: bool) -> Call[None]:
    """Build the call of mbus.alter_queue."""
    return Call(
        "select mbus.alter_queue(qname => %s, is_roles_security_model => %s)",
        (queue, is_roles_security_model),
        rows.nothing,
    )


def drop_queue(queue: str) -> Call[None]:
    """Build the call of mbus.drop_queue."""
    return Call("select mbus.drop_queue(qname => %s)", (queue,), rows.nothing)


def create_consumer(queue: str, consumer: str, selector: str | None, noindex: bool) -> Call[None]:
    """Build the call of mbus.create_consumer."""
    return Call(
        "select mbus.create_consumer(qname => %s, cname => %s, selector => %s, noindex => %s)",
        (queue, consumer, selector, noindex),
        rows.nothing,
    )


def drop_consumer(queue: str, consumer: str) -> Call[None]:
    """Build the call of mbus.drop_consumer."""
    return Call(
        "select mbus.drop_consumer(qname => %s, cname => %s)", (queue, consumer), rows.nothing
    )


def alter_consumer(
    queue: str,
    consumer: str,
    max_attempts: int | None,
    backoff: Duration | None,
    backoff_max: Duration | None,
) -> Call[None]:
    """Build the call of mbus.alter_consumer."""
    return Call(
        "select mbus.alter_consumer(qname => %s, cname => %s, max_attempts => %s,"
        " backoff => %s, backoff_max => %s)",
        (
            queue,
            consumer,
            max_attempts,
            length_or_none("backoff", backoff),
            length_or_none("backoff_max", backoff_max),
        ),
        rows.nothing,
    )


# Posting.


def get_iid(queue: str) -> Call[str]:
    """Build the call of mbus.get_iid."""
    return Call("select mbus.get_iid(qname => %s)", (queue,), rows.value)


def post(
    queue: str,
    payload: Payload,
    data: object,
    headers: Hstore | None,
    properties: Hstore | None,
    delayed_until: datetime | None,
    expires: datetime | None,
    iid: str | None,
) -> Call[str]:
    """Build the call of mbus.post_<queue>."""
    return Call(
        f"select {function('post', queue)}(data => %s, headers => %s, properties => %s,"
        " delayed_until => %s, expires => %s, iid => %s)",
        (
            payloads.parameter(payload, data),
            parameters.hstore("headers", trace.stamped(headers)),
            parameters.hstore("properties", properties),
            parameters.zoned("delayed_until", delayed_until),
            parameters.zoned("expires", expires),
            iid,
        ),
        rows.value,
        queue,
    )


def post_many(
    queue: str,
    payload: Payload,
    data: Sequence[object],
    headers: Hstores,
    properties: Hstores,
    delayed_until: datetime | None,
    expires: datetime | None,
) -> list[Call[list[str]]]:
    """Build the calls of mbus.postn_<queue>, one for each thousand messages, in order."""
    for name, value in (("headers", headers), ("properties", properties)):
        if isinstance(value, Sequence) and len(value) != len(data):
            raise InvalidArgument(
                f"{len(value)} {name} for {len(data)} messages",
                hint="give one mapping for all, or one for each message",
            )
    text = (
        f"select {function('postn', queue)}(data => %s, headers => %s, properties => %s,"
        " delayed_until => %s, expires => %s)"
    )
    times = (parameters.zoned("delayed_until", delayed_until), parameters.zoned("expires", expires))
    return [
        Call(
            text,
            (
                payloads.array(payload, data[start : start + CHUNK_MESSAGES]),
                parameters.hstores("headers", _stamped(headers), start, CHUNK_MESSAGES),
                parameters.hstores("properties", properties, start, CHUNK_MESSAGES),
                *times,
            ),
            rows.values,
            queue,
        )
        for start in range(0, len(data), CHUNK_MESSAGES)
    ]


def _stamped(headers: Hstores) -> Hstores:
    if isinstance(headers, Sequence):
        return [trace.stamped(one) or one for one in headers]
    return trace.stamped(headers)


# Taking.


def consume(queue: str, consumer: str, amount: int, payload: Payload) -> Call[list[Message]]:
    """Build the call of mbus.consumen_<queue>_by_<consumer>."""
    return Call(
        rows.select(Message, function("consumen", queue, "by", consumer) + "(amt => %s)"),
        (amount,),
        rows.messages(payload),
        queue,
        consumer,
        lambda bad: dead_letter(bad, consumer, payload),
        # A client may be unable to read JSON: too deep, or with a number of thousands of digits.
        is_atomic=payload == "jsonb",
    )


def take(iid: str, consumer: str | None, payload: Payload) -> Call[Message | None]:
    """Build the call of mbus.take_<queue> or mbus.take_from_<queue>_by_<consumer>."""
    queue = queue_of(iid)
    name = (
        function("take", queue)
        if consumer is None
        else function("take_from", queue, "by", consumer)
    )
    return Call(
        rows.select(Message, name + "(%s)"),
        (iid,),
        rows.message(payload),
        queue,
        consumer,
        (lambda bad: dead_letter(bad, consumer, payload)) if consumer else None,
        is_atomic=payload == "jsonb",
    )


def peek(queue: str, iid: str | None) -> Call[bool]:
    """Build the call of mbus.peek_<queue>."""
    return Call(f"select {function('peek', queue)}(msgid => %s)", (iid,), rows.value, queue)


def reject(
    queue: str,
    consumer: str,
    iid: str,
    delay: Duration | None,
    error: str | None,
    park: bool,
) -> Call[str]:
    """Build the call of mbus.reject."""
    return Call(
        "select mbus.reject(qname => %s, cname => %s, iid => %s, delay => %s, error => %s,"
        " park => %s)",
        (queue, consumer, iid, length_or_none("delay", delay), error, park),
        rows.value,
    )


def give_back(
    message: Message,
    consumer: str,
    payload: Payload,
    delay: Duration | None,
    error: str | None,
    park: bool,
) -> Call[str]:
    """Build the call of mbus.give_back."""
    columns = (
        message.id,
        message.added,
        message.iid,
        message.delayed_until,
        message.expires,
        parameters.hstore("headers", message.headers),
        parameters.hstore("properties", message.properties or None),
        payloads.parameter(payload, message.data),
    )
    return _give_back(consumer, payload, columns, length_or_none("delay", delay), error, park)


def _give_back(
    consumer: str,
    payload: Payload,
    columns: Iterable[object],
    delay: timedelta | None,
    error: str | None,
    park: bool,
) -> Call[str]:
    model = "qt_model" if payload == "hstore" else f"qt_model_{payload}"
    return Call(
        "select mbus.give_back(cname => %s, message => row(%s, %s, %s, %s, %s, null, %s, %s, %s)"
        f"::mbus.{model}, delay => %s, error => %s, park => %s)",
        (consumer, *columns, delay, error, park),
        rows.value,
    )


def dead_letter(bad: BadRow, consumer: str, payload: Payload) -> Call[str]:
    """Build the call of mbus.give_back for a message that cannot be decoded."""
    columns = ("id", "added", "iid", "delayed_until", "expires", "headers", "properties", "data")
    texts = [bad.texts[name] for name in columns]
    return _give_back(consumer, payload, texts, None, bad.reason, True)


# Leases.


def lease(
    queue: str, consumer: str, amount: int, ttl: Duration, payload: Payload
) -> Call[list[LeasedMessage]]:
    """Build the call of mbus.lease_<queue>_by_<consumer>."""
    return Call(
        rows.select(
            LeasedMessage, function("lease", queue, "by", consumer) + "(amt => %s, ttl => %s)"
        ),
        (amount, length("ttl", ttl)),
        rows.leased_messages(payload),
        queue,
        consumer,
        lambda bad: nack(Lease(bad.iid, bad.token), None, bad.reason, True),
    )


def ack(message: Leased) -> Call[None]:
    """Build the call of mbus.ack."""
    return Call(
        "select mbus.ack(iid => %s, token => %s)", (message.iid, message.token), rows.nothing
    )


def ack_many(messages: Sequence[Leased]) -> Call[list[str]]:
    """Build the call of mbus.ackn."""
    return Call(
        "select mbus.ackn(iids => %s::text[], tokens => %s::bigint[])",
        ([each.iid for each in messages], [each.token for each in messages]),
        rows.values,
    )


def nack(message: Leased, delay: Duration | None, error: str | None, park: bool) -> Call[str]:
    """Build the call of mbus.nack."""
    return Call(
        "select mbus.nack(iid => %s, token => %s, delay => %s, error => %s, park => %s)",
        (message.iid, message.token, length_or_none("delay", delay), error, park),
        rows.value,
    )


def extend(message: Leased, ttl: Duration) -> Call[datetime]:
    """Build the call of mbus.extend."""
    return Call(
        "select mbus.extend(iid => %s, token => %s, ttl => %s)",
        (message.iid, message.token, length("ttl", ttl)),
        rows.value,
    )


def extend_many(messages: Sequence[Leased], ttl: Duration) -> Call[list[str]]:
    """Build the call of mbus.extendn."""
    return Call(
        "select mbus.extendn(iids => %s::text[], tokens => %s::bigint[], ttl => %s)",
        ([each.iid for each in messages], [each.token for each in messages], length("ttl", ttl)),
        rows.values,
    )


# Operating.


def now() -> Call[datetime]:
    """Build the call of mbus.now."""
    return Call("select mbus.now()", (), rows.value)


def redrive(queue: str, consumer: str | None, iid: str | None, died_before: datetime) -> Call[int]:
    """Build the call of mbus.redrive."""
    return Call(
        "select mbus.redrive(qname => %s, cname => %s, iid => %s, died_before => %s)",
        (queue, consumer, iid, died_before),
        rows.value,
    )


def maintain(queue: str | None) -> Call[list[Maintained]]:
    """Build the call of mbus.maintain."""
    return Call(
        rows.select(Maintained, "mbus.maintain(qname => %s)"),
        (queue,),
        rows.facts(Maintained),
    )


def notify(queues: Sequence[str]) -> Call[None]:
    """Build the call of mbus.notify."""
    return Call("select mbus.notify(qnames => %s::text[])", (list(queues),), rows.nothing)


def positions(queues: Sequence[str]) -> Call[list[int]]:
    """Build the call of mbus.positions."""
    return Call("select mbus.positions(qnames => %s::text[])", (list(queues),), rows.values)
