"""The calls of the bus, written once: contract, statement, and how the rows are read.

These functions are the methods of `Bus` and `AsyncBus`, see `postroad.bus.call`; the workers run
some of them directly. Functions of a queue are called by their own names (`mbus.post_orders`),
because their plans are static and their permissions are those of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from postroad import trace
from postroad.bus import parameters, rows
from postroad.bus import payload as payloads
from postroad.bus import request as requests
from postroad.bus.call import Call, OfQueue, Procedure, listed, named, sql
from postroad.bus.decoding import BadRow
from postroad.bus.errors import InvalidArgument
from postroad.bus.hstore import Hstore, array_literal
from postroad.bus.message import Lease, Leased, LeasedMessage, Message
from postroad.bus.parameters import Duration, Hstores, function, length, length_or_none, queue_of
from postroad.bus.payload import Payload
from postroad.bus.request import Question, Reply
from postroad.bus.status import Maintained

if TYPE_CHECKING:
    from postroad.bus.runner import AsyncRunner

L = TypeVar("L", bound=LeasedMessage)

CHUNK_MESSAGES = 1_000
LEASE_DEFAULT = timedelta(seconds=30)


def describe(queue: str) -> Call[str | None]:
    """Return the payload of a queue; None when there is no such queue."""
    text = "select (select payload::text from mbus.queues where queue = %s)"
    return Call(text, (queue,), rows.value)


def measure(
    queue: str, consumer: str, kinds: list[str], counts: list[int], totals: list[float]
) -> Call[None]:
    """Add what a worker of your own has measured to the histograms of a consumer.

    For each kind (wait, handled, failed, attempts, batch) the number of values up to each bound of
    `mbus.measures` and above the last one, and their sum. Raises QueueNotFound, ConsumerNotFound,
    InvalidArgument.
    """
    given = {"qname": queue, "cname": consumer, "kinds": kinds, "counts": counts, "totals": totals}
    return sql(NoneType, "measure", **given)


def get_iid(queue: str) -> Call[str]:
    """Reserve the iid of a message that will be posted later with `post(..., iid=...)`."""
    return sql(str, "get_iid", qname=queue)


def post(
    queue: str,
    data: object,
    headers: Hstore | None = None,
    properties: Hstore | None = None,
    delayed_until: datetime | None = None,
    expires: datetime | None = None,
    iid: str | None = None,
) -> OfQueue[str]:
    """Post one message and return its iid.

    In the caller's transaction when the bus has the caller's connection: the message exists once
    that commits. Otherwise it is durable on return, and waiting workers are notified. Headers with
    a meaning for the bus: priority, group, dedup_key, dedup_window, unique_key, unique_until,
    debounce, max_debounce; if the key is already in use, the iid of its message is returned. Raises
    QueueNotFound, WrongPayload, InvalidArgument, DuplicateIid, ForeignIid.
    """
    return OfQueue(
        queue,
        lambda payload: Call(
            f"select {function('post', queue)}(data => %s, headers => %s, properties => %s,"
            " delayed_until => %s, expires => %s, iid => %s)",
            (
                payloads.parameter(payload, data),
                parameters.hstore("headers", trace.stamped(headers, queue)),
                parameters.hstore("properties", properties),
                parameters.zoned("delayed_until", delayed_until),
                parameters.zoned("expires", expires),
                iid,
            ),
            rows.value,
            queue,
            wakes=(queue,),
        ),
    )


def post_many(
    queue: str,
    data: Iterable[object],
    headers: Hstores = None,
    properties: Hstores = None,
    delayed_until: datetime | None = None,
    expires: datetime | None = None,
) -> OfQueue[list[str]]:
    """Post many messages, all or none, and return their iids in order.

    `headers` and `properties` are one mapping for all messages or a sequence with one for
    each. Transaction and errors as for `post`.
    """
    messages = list(data)
    for name, value in (("headers", headers), ("properties", properties)):
        if isinstance(value, Sequence) and len(value) != len(messages):
            raise InvalidArgument(
                f"{len(value)} {name} for {len(messages)} messages",
                hint="pass one mapping for all messages, or one for each",
            )
    text = (
        f"select {function('postn', queue)}(data => %s, headers => %s, properties => %s,"
        " delayed_until => %s, expires => %s)"
    )
    times = (parameters.zoned("delayed_until", delayed_until), parameters.zoned("expires", expires))
    stamped = _stamped(headers, queue)

    def chunk(payload: Payload, start: int) -> Call[list[str]]:
        part = messages[start : start + CHUNK_MESSAGES]
        values = (
            parameters.hstores("headers", stamped, start, CHUNK_MESSAGES),
            parameters.hstores("properties", properties, start, CHUNK_MESSAGES),
        )
        # Binary format takes the server less time than a literal.
        is_binary = bool(part) and payload in ("text", "bytea")
        sent = (
            [payloads.parameter(payload, each) for each in part]
            if is_binary
            else payloads.array(payload, part)
        )
        statement = text.replace("%s", "%b", 1) if is_binary else text
        return Call(statement, (sent, *values, *times), rows.values, queue, wakes=(queue,))

    def build(payload: Payload) -> Call[list[str]]:
        starts = range(0, len(messages) or 1, CHUNK_MESSAGES)
        parts = [chunk(payload, start) for start in starts]
        if len(parts) == 1:
            return parts[0]
        return Call("", (), lambda lists: [*chain(*lists)], queue, wakes=(queue,), parts=parts)

    return OfQueue(queue, build)


def _stamped(headers: Hstores, queue: str) -> Hstores:
    if isinstance(headers, Sequence):
        return [trace.stamped(one, queue) or one for one in headers]
    return trace.stamped(headers, queue)


def request(
    queue: str,
    data: object,
    headers: Hstore | None = None,
    properties: Hstore | None = None,
    timeout: Duration = requests.REQUEST_TIMEOUT_DEFAULT,
) -> Procedure[Reply]:
    """Post a message and wait for the answer of its handler.

    Runs in its own transaction, on the bus's own connections. The request expires with the
    timeout and a later answer is dropped. Raises RequestTimedOut, and the errors of `post`.
    """
    span = length("timeout", timeout)

    async def work(runner: AsyncRunner) -> Reply:
        payload = await runner.payload(queue)
        return await runner.ask(Question(queue, payload, data, headers, properties, span))

    return Procedure(work)


def reply(
    message: Message,
    data: object,
    headers: Hstore | None = None,
    properties: Hstore | None = None,
) -> OfQueue[str | None]:
    """Answer a message that was posted with `request`; the data has the payload of its queue.

    In the caller's transaction when the bus has the caller's connection. Returns the answer's
    iid, or None if the requester no longer waits. Raises InvalidArgument if the message is not
    a request.
    """

    def build(payload: Payload) -> Call[str | None]:
        many = requests.reply_many([message], payload, [data], headers, properties)
        return Call(many.text, many.parameters, lambda found: many.read(found)[0])

    return OfQueue(queue_of(message.iid), build)


def consume(queue: str, consumer: str = "default", amount: int = 1) -> OfQueue[list[Message]]:
    """Take up to `amount` messages, in order of posting; fewer or none if there are no more.

    In the caller's transaction when the bus has the caller's connection: its commit consumes them,
    a rollback or a lost connection returns them immediately. Otherwise they are consumed on
    return; use `lease`, `subscribe` or a worker for work that must survive a crash.
    Raises QueueNotFound, ConsumerNotFound, WrongIsolation.
    """
    return OfQueue(
        queue,
        lambda payload: Call(
            rows.select_batch(Message, function("batch", queue, "by", consumer) + "(amt => %s)"),
            (amount,),
            rows.messages(payload, Message),
            queue,
            consumer,
            lambda bad: _dead_letter(bad, consumer, payload),
            # The client may be unable to read JSON that is too deep or has numbers of huge length.
            is_atomic=payload == "jsonb",
        ),
    )


def take(iid: str, consumer: str | None = None) -> OfQueue[Message | None]:
    """Take one message by its iid, from all consumers or from one; None if it does not exist.

    Waits while another transaction holds it. Transaction as for `consume`.
    """
    queue = queue_of(iid)
    name = ("take", queue) if consumer is None else ("take_from", queue, "by", consumer)

    def build(payload: Payload) -> Call[Message | None]:
        return Call(
            rows.select(Message, function(*name) + "(%s)"),
            (iid,),
            lambda found: next(iter(rows.messages(payload, Message)(found)), None),
            queue,
            consumer,
            (lambda bad: _dead_letter(bad, consumer, payload)) if consumer else None,
            is_atomic=payload == "jsonb",
        )

    return OfQueue(queue, build)


def peek(queue: str, iid: str | None = None) -> Call[bool]:
    """Return whether the queue has this message, or any message. Read-only."""
    return Call(f"select {function('peek', queue)}(msgid => %s)", (iid,), rows.value, queue)


def reject(
    queue: str,
    consumer: str,
    iid: str,
    delay: Duration | None = None,
    error: str | None = None,
    park: bool = False,
    *,
    dead_letter: bool = False,
) -> Call[str]:
    """Count a failed attempt of a message consumed in a transaction that was rolled back.

    It is delivered again after `delay` (None: the consumer's backoff) or goes to the dmq:
    immediately with `dead_letter` (`park` is its old name), otherwise after the last attempt.
    Returns `ready`, `delayed`, `dmq`, or `absent` if the message no longer exists. Raises
    TakenInTransaction if the caller's own transaction took it; use `give_back` there.
    """
    given = {"qname": queue, "cname": consumer, "iid": iid}
    return sql(str, "reject", **given, **_failure(delay, error, park or dead_letter))


def _failure(
    delay: Duration | None, error: str | None, is_dead: bool
) -> dict[str, timedelta | str | bool | None]:
    return {"delay": length_or_none("delay", delay), "error": error, "park": is_dead}


def give_back(
    message: Message,
    consumer: str = "default",
    delay: Duration | None = None,
    error: str | None = None,
    park: bool = False,
    *,
    dead_letter: bool = False,
) -> OfQueue[str]:
    """Give back a message that the caller's open transaction consumed or took.

    The attempt counts when that transaction commits: the message is delivered again after
    `delay` (None: the consumer's backoff), or goes to the dmq, as with `reject`. Returns `ready`,
    `delayed` or `dmq`. Raises NotTaken when the message was not taken in this transaction.
    """
    failure = _failure(delay, error, park or dead_letter)
    headers = parameters.hstore("headers", message.headers)
    properties = parameters.hstore("properties", message.properties or None)

    def build(payload: Payload) -> Call[str]:
        times = message.delayed_until, message.expires
        texts = headers, properties, payloads.parameter(payload, message.data)
        columns = (message.id, message.added, message.iid, *times, *texts)
        return _give_back(consumer, payload, columns, failure)

    return OfQueue(queue_of(message.iid), build)


def _give_back(
    consumer: str, payload: Payload, columns: Iterable[object], failure: Mapping[str, object]
) -> Call[str]:
    model = "qt_model" if payload == "hstore" else f"qt_model_{payload}"
    return Call(
        "select mbus.give_back(cname => %s, message => row(%s, %s, %s, %s, %s, null, %s, %s, %s)"
        f"::mbus.{model}, delay => %s, error => %s, park => %s)",
        (consumer, *columns, *failure.values()),
        rows.value,
    )


def _dead_letter(bad: BadRow, consumer: str, payload: Payload) -> Call[str]:
    """Build the call of mbus.give_back for a message that cannot be decoded."""
    columns = ("id", "added", "iid", "delayed_until", "expires", "headers", "properties", "data")
    texts = [bad.texts[name] for name in columns]
    return _give_back(consumer, payload, texts, _failure(None, bad.reason, True))


def lease(
    queue: str, consumer: str = "default", amount: int = 1, ttl: Duration = LEASE_DEFAULT
) -> OfQueue[list[LeasedMessage]]:
    """Take up to `amount` messages for work longer than a transaction.

    The caller holds each until `ack`, `nack`, or the end of the lease, when it is delivered
    again. The lease is part of the caller's transaction when the bus has the caller's connection.
    """
    return leased(LeasedMessage, queue, consumer, amount, ttl)


def leased(
    kind: type[L], queue: str, consumer: str, amount: int, ttl: Duration
) -> OfQueue[list[L]]:
    """Build the call of `lease` that returns messages of a derived class."""
    source = function("leasen", queue, "by", consumer) + "(amt => %s, ttl => %s)"
    return OfQueue(
        queue,
        lambda payload: Call(
            rows.select_batch(LeasedMessage, source),
            (amount, length("ttl", ttl)),
            rows.messages(payload, kind),
            queue,
            consumer,
            lambda bad: nack(Lease(bad.iid, bad.token), error=bad.reason, dead_letter=True),
        ),
    )


def ack(message: Leased) -> Call[None]:
    """Finish a leased message. Raises LeaseLost if the caller no longer holds it."""
    return sql(NoneType, "ack", iid=message.iid, token=message.token)


def ack_many(messages: Sequence[Leased], consumer: str | None = None) -> Call[list[str]]:
    """Finish many leased messages; return the iids whose lease was lost.

    Faster with the name of a consumer; all messages must then belong to it and to one queue.
    """
    if consumer is None or not messages:
        return sql(list[str], "ackn", **_tokens(messages))
    name = function("ackn", messages[0].iid.partition(".")[0], "by", consumer)
    iids = {each.token: each.iid for each in messages}
    call = sql(list[int], name.removeprefix("mbus."), **_tokens(messages))
    return Call(call.text, call.parameters, lambda found: [iids[each] for each in call.read(found)])


def _tokens(messages: Sequence[Leased]) -> dict[str, str]:
    # The driver takes ten times as long to write a list.
    return {
        "iids": array_literal(each.iid for each in messages),
        "tokens": array_literal(str(each.token) for each in messages),
    }


def nack(
    message: Leased,
    delay: Duration | None = None,
    error: str | None = None,
    park: bool = False,
    *,
    dead_letter: bool = False,
) -> Call[str]:
    """Give a leased message back after a failure.

    It is delivered again after `delay` (None: the consumer's backoff) or goes to the dmq:
    immediately with `dead_letter` (`park` is its old name), otherwise after the last attempt.
    Returns `ready`, `delayed` or `dmq`. Raises LeaseLost.
    """
    given = {"iid": message.iid, "token": message.token}
    return sql(str, "nack", **given, **_failure(delay, error, park or dead_letter))


def extend_lease(message: Leased, ttl: Duration = LEASE_DEFAULT) -> Call[datetime]:
    """Extend a lease to `ttl` from now; return its new end. Raises LeaseLost."""
    return sql(datetime, "extend", iid=message.iid, token=message.token, ttl=length("ttl", ttl))


def extend(message: Leased, ttl: Duration = LEASE_DEFAULT) -> Call[datetime]:
    """Call `extend_lease`; the old name."""
    return extend_lease(message, ttl)


def extend_many(messages: Sequence[Leased], ttl: Duration = LEASE_DEFAULT) -> Call[list[str]]:
    """Extend many leases to `ttl` from now; return the iids whose lease was lost."""
    return sql(list[str], "extendn", **_tokens(messages), ttl=length("ttl", ttl))


def release_many(messages: Sequence[Leased]) -> Call[list[str]]:
    """Give back leased messages that were not begun, without counting an attempt.

    They are ready again. Returns the iids whose lease was lost.
    """
    return sql(list[str], "releasen", **_tokens(messages))


def consume_temporary(
    name: str,
    amount: int = 1,
    wait: timedelta = timedelta(0),
    payload: Payload | None = None,
) -> OfQueue[list[Message]]:
    """Take up to `amount` messages of a temporary queue; wait up to `wait` for the first.

    `payload` is needed only for a queue that another bus has created on this connection.
    Raises QueueNotFound, RoleMissing, Unsupported, and InvalidArgument when the bus has no
    connection of the caller's.
    """

    def build(known: Payload) -> Call[list[Message]]:
        payloads.check(carried := payload or known)
        suffix = "" if carried == "hstore" else f"_{carried}"
        return Call(
            rows.select(Message, named("consume_temporary" + suffix, "qname", "amt", "wait")),
            (name, amount, wait),
            rows.messages(carried, Message),
            name,
            # A temporary queue has no dmq.
            remove=lambda _: None,
            needs_session=True,
        )

    return OfQueue(name, build, otherwise="hstore")


def clear_tempq() -> Call[int]:
    """Remove the temporary queues of sessions that have ended; maintenance does so too."""
    return sql(int, "clear_tempq")


def now() -> Call[datetime]:
    """Return the time of the server."""
    return sql(datetime, "now")


def maintain(queue: str | None = None) -> Call[list[Maintained]]:
    """Run the maintenance that is due, of one queue or all; safe to run concurrently.

    Needs its own transaction, so it cannot run on a connection inside a transaction.
    """
    return listed(Maintained, named("maintain", "qname"), queue)


def close() -> Procedure[None]:
    """Send pending notices and close what the bus opened; a second call does nothing."""
    return Procedure(lambda runner: runner.close())


def notify(*queues: str) -> Call[None]:
    """Notify the workers that wait for these queues; call it after committing your own posts."""
    return sql(NoneType, "notify", qnames=list(queues))


def positions(*queues: str) -> Call[list[int]]:
    """Return the position of each queue's last post; a cheap check for new messages."""
    return sql(list[int], "positions", qnames=list(queues))
