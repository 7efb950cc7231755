"""Operators' actions on messages and sagas; `resources` declares them for all interfaces."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_type_hints

from psycopg import AsyncConnection

from postroad.bus import dead_calls, queue_calls, rows, saga_calls, schedule_calls
from postroad.bus import payload as payloads
from postroad.bus.browse import State
from postroad.bus.call import AnyCall, Call, named, sql
from postroad.bus.client import AsyncBus
from postroad.bus.errors import InvalidArgument, QueueNotFound, WrongPayload
from postroad.bus.payload import Payload
from postroad.bus.schedule_calls import Missed


def _operation(
    build: Callable[..., AnyCall[Any]], example: str, **helps: str
) -> Callable[..., Awaitable[Any]]:
    """Derive an operation from a method of the bus: parameters with a default are its options."""

    async def operation(connection: AsyncConnection[Any], **given: Any) -> Any:
        if acting is not None:
            given[acting] = given.pop("by")
        return await AsyncBus(connection)._run(build(**given))

    parameters, hints = [], get_type_hints(build)
    found = inspect.signature(build).parameters
    acting = next((name for name in found if name.endswith("_by")), None)
    for name, one in found.items():
        if name == acting:
            parameters.append(one.replace(name="by", kind=one.KEYWORD_ONLY, default=one.empty))
        elif one.default is one.empty:
            parameters.append(one)
        else:
            hints[name] = Annotated[hints[name], helps[name]]
            parameters.append(one.replace(kind=one.KEYWORD_ONLY))
    connection = inspect.Parameter("connection", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    operation.__name__ = build.__name__
    operation.__doc__ = f"{inspect.getdoc(build)}\n\nExample: {example}"
    operation.__annotations__ = hints
    operation.__signature__ = inspect.Signature([connection, *parameters])  # type: ignore[attr-defined]
    return operation


_REASON = "Why; it is shown with the pause."
redrive = _operation(
    dead_calls.redrive,
    "postroad bus redrive orders --iid orders.4711@k3f9q2",
    consumer="Only those of this consumer.",
    iid="Only this message.",
)
pause = _operation(
    queue_calls.pause,
    'postroad bus pause orders --consumer billing --reason "the ERP is down"',
    consumer="Only this consumer, not the whole queue.",
    reason=_REASON,
)
resume = _operation(
    queue_calls.resume,
    "postroad bus resume orders --consumer billing",
    consumer="Only this consumer, if it was paused itself.",
)
limit = _operation(
    queue_calls.limit_consumer,
    "postroad bus limit orders --consumer billing --rate 50 --key partner",
    consumer="The consumer.",
    rate="Messages per second.",
    burst="Burst after a pause; default: the messages of one second.",
    concurrency="Messages held at the same time.",
    key="Property or header by which messages are taken in turns.",
    key_rate="Messages per second of each key.",
    key_concurrency="Messages of each key held at the same time.",
)
stop_replay = _operation(queue_calls.stop_replay, "postroad bus replays stop 7")
continue_replay = _operation(queue_calls.continue_replay, "postroad bus replays continue 7")
run_now = _operation(schedule_calls.run_now, "postroad bus schedules run-now nightly")
unschedule = _operation(schedule_calls.unschedule, "postroad bus schedules remove nightly")
pause_schedule = _operation(
    schedule_calls.pause_schedule,
    'postroad bus schedules pause nightly --reason "month-end closing"',
    reason=_REASON,
)
resume_schedule = _operation(
    schedule_calls.resume_schedule, "postroad bus schedules resume nightly"
)
retry = _operation(saga_calls.retry, "postroad saga retry 42")
settle = _operation(saga_calls.settle, "postroad saga settle 42 rooms")


async def create(
    connection: AsyncConnection[Any],
    queue: str,
    consumer: str | None = None,
    *,
    payload: Payload = "hstore",
    ncons: Annotated[int, "Number of ring segments; default 8."] = 8,
    has_roles: Annotated[bool, "Only members of the queue's roles may post and consume."] = False,
    selector: Annotated[
        str | None, "SQL condition over the message t: which messages the consumer gets."
    ] = None,
    start_from: Annotated[
        str | None,
        "Also what was posted since then and is retained or not consumed yet, or earliest.",
    ] = None,
    noindex: Annotated[bool, "Accepted for compatibility with older scripts."] = False,
    contract: Annotated[
        Literal["message", "cursor"],
        "How the consumer takes messages: one by one, which is the default, or with a cursor.",
    ] = "message",
) -> dict[str, str]:
    """Create a queue, or a consumer of an existing one.

    Example: postroad bus create orders --payload jsonb

    Example: postroad bus create orders audit --selector "(t.properties->'STATE')='DONE'"
    """
    bus = AsyncBus(connection)
    if consumer is not None:
        start: Any = start_from if start_from == "earliest" else time_of(start_from)
        await bus.create_consumer(queue, consumer, selector, noindex, start, contract)
    elif selector or start_from or contract != "message":
        reason = "this option belongs to a consumer"
        raise InvalidArgument(reason, hint="add the name of the consumer: CONSUMER follows QUEUE")
    else:
        await bus.create_queue(queue, ncons, has_roles, payload)
    return _subject(queue, consumer)


async def drop(
    connection: AsyncConnection[Any], queue: str, consumer: str | None = None
) -> dict[str, Any]:
    """Drop a queue, or one consumer of it, with its messages.

    Example: postroad bus drop orders audit --dry-run
    """
    bus = AsyncBus(connection)
    status = [one for one in await bus.status(queue) if consumer in (None, one.consumer)]
    await (bus.drop_queue(queue) if consumer is None else bus.drop_consumer(queue, consumer))
    lost = sum(one.depth + one.dmq for one in status)
    return {**_subject(queue, consumer), "messages_lost": lost}


def _subject(queue: str, consumer: str | None) -> dict[str, str]:
    of = f"consumer {consumer} of " if consumer is not None else ""
    return {"subject": f"{of}queue {queue}"}


async def redrive_dead(
    connection: AsyncConnection[Any],
    ids: Sequence[int],
    *,
    delay: Annotated[timedelta | None, "Deliver them after this time."] = None,
) -> int:
    """Deliver dead messages again, by their numbers or all that match filters.

    Their attempts are counted from zero. Expired messages stay dead. With --all each batch is one
    transaction: after an interruption, repeat the command.

    Example: postroad bus dead redrive --all --queue orders --group 3f9ac2d17b04 --dry-run
    """
    return await AsyncBus(connection)._run(sql(int, "redrive_dead", ids=list(ids), delay=delay))


async def move_dead(
    connection: AsyncConnection[Any],
    ids: Sequence[int],
    *,
    destination: Annotated[str, "The queue that gets them."],
) -> int:
    """Post dead messages to another queue with the same payload. Messages of sagas stay dead.

    Each gets an iid of that queue and keeps its own in the header moved_from.

    Example: postroad bus dead move --all --queue orders --destination archive
    """
    call = sql(int, "move_dead", ids=list(ids), destination=destination)
    with _destination_known():
        return await AsyncBus(connection)._run(replace(call, wakes=(destination,)))


async def purge_dead(connection: AsyncConnection[Any], ids: Sequence[int]) -> int:
    """Delete dead messages, by their numbers or all that match filters.

    Messages of sagas stay dead. Messages that wait for a deleted one treat it as lost.

    Example: postroad bus dead purge --all --queue orders --older-than "30 days"
    """
    return await AsyncBus(connection)._run(sql(int, "purge_dead", ids=list(ids)))


async def edit_dead(
    connection: AsyncConnection[Any],
    iid: str,
    *,
    data: Annotated[str | None, "The new payload, as the list shows it."] = None,
    properties: Annotated[str | None, "The new properties, as JSON."] = None,
    consumer: Annotated[str | None, "Only the copy of this consumer."] = None,
    by: str,
) -> int:
    """Redrive a dead message with other data or properties.

    It keeps its iid, and its original stays listed by `postroad bus dead-originals`. Raises
    QueueNotFound, ConsumerNotFound, WrongPayload, ForeignIid.

    Example: postroad bus dead edit orders.4711@k3f9q2 --data '{"city": "Tver"}'
    """
    try:
        changed = None if properties is None else json.loads(properties)
    except ValueError as wrong:
        raise WrongPayload(f"the properties are not valid JSON: {wrong}") from wrong
    call = dead_calls.redrive_with_text(iid, data, changed, consumer, by)
    return await AsyncBus(connection)._run(call)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that was started, or the number of messages that it would post."""

    what: str
    replay: int | None = None
    messages: int | None = None


async def replay(
    connection: AsyncConnection[Any],
    queue: str,
    *,
    consumer: Annotated[str, "Who gets them again."] = "default",
    since: Annotated[str | None, "Posted at this time or later: 2026-01-31T12:00."] = None,
    until: Annotated[str | None, "Posted before this time; default: before now."] = None,
    selector: Annotated[str | None, "Only those that match this condition over t."] = None,
    rate: Annotated[int | None, "At most so many per second."] = None,
    again: Annotated[bool, "Begin another replay after one with the same times."] = False,
    by: str,
    is_dry_run: bool,
) -> Replayed:
    """Post to a consumer again what it consumed and the queue retains.

    Maintenance posts the messages, with their iids and the header replayed: see `postroad bus
    replays`. Repeating the command continues its replay. A dry run counts the messages. Raises
    QueueNotFound, ConsumerNotFound, InvalidSelector, InvalidArgument.

    Example: postroad bus replay orders --consumer audit --since 2026-01-31T12:00 --dry-run
    """
    bus, past = AsyncBus(connection), (queue, consumer, time_of(since), time_of(until), selector)
    if is_dry_run:
        count = await bus.count_replay(*past)
        return Replayed(f"a replay of {count} messages", messages=count)
    number = await bus.replay(*past, rate, again, by)
    return Replayed(f"replay {number}", number)


def time_of(text: str | None) -> datetime | None:
    """Read a time; without a zone it is local. Raises InvalidArgument."""
    try:
        return None if not text else datetime.fromisoformat(text).astimezone()
    except ValueError as wrong:
        hint = "write it as 2026-01-31T12:00, with a time zone if it is not the local one"
        raise InvalidArgument(f"invalid time: {text}", hint=hint) from wrong


async def track(
    connection: AsyncConnection[Any],
    queue: str,
    field: Annotated[str, "A property, or a field of the payload; an empty text ends it."],
) -> None:
    """Make the messages of a queue findable by a business key, by trace and by correlation.

    Raises QueueNotFound, QueueBusy.

    Example: postroad bus track orders order_id
    """
    await AsyncBus(connection).alter_queue(queue, track=field)


async def schema(
    connection: AsyncConnection[Any],
    queue: str,
    schema: Annotated[str, "A JSON Schema; {} or an empty text ends it."],
) -> None:
    """Refuse posts to a queue whose data violates a JSON Schema. Stored messages stay.

    Raises QueueNotFound, WrongPayload, InvalidArgument, QueueBusy.

    Example: postroad bus schema orders '{"required": ["number"]}'
    """
    await AsyncBus(connection).alter_queue(queue, schema=payloads.parse("jsonb", schema or "{}"))


async def retain(
    connection: AsyncConnection[Any],
    queue: str,
    *,
    period: Annotated[timedelta | None, "For how long; 0 ends it."] = None,
    size: Annotated[int | None, "At most so many bytes; 0 removes this limit."] = None,
) -> None:
    """Keep consumed messages readable for a time, or up to a size.

    Raises QueueNotFound, InvalidArgument, QueueBusy.

    Example: postroad bus retain orders --period 7d
    """
    await AsyncBus(connection).alter_queue(queue, retain=period, retain_size=size)


async def schedule(
    connection: AsyncConnection[Any],
    name: str,
    timing: str,
    queue: str,
    data: str,
    *,
    timezone: Annotated[str, "Where a cron expression's times are local."] = "UTC",
    missed: Annotated[Missed, "Runs that are late: skip, post once, or post all."] = "once",
) -> None:
    """Post a message at planned times: a cron expression, or an interval.

    A schedule of this name is replaced. Raises QueueNotFound, WrongPayload, InvalidArgument.

    Example: postroad bus schedules add nightly "0 3 * * *" orders '{"report": 1}'
    """
    bus = AsyncBus(connection)
    value = payloads.parse(await bus._runner.payload(queue), data)
    await bus.schedule(name, timing, queue, value, timezone, missed)


async def cancel(
    connection: AsyncConnection[Any],
    saga_id: int,
    *,
    reason: Annotated[str | None, "Why; it is stored with the saga."] = None,
    by: str,
) -> bool:
    """Roll a saga back: steps that are done are compensated, in reverse order.

    Returns False if its rollback has already begun. Raises SagaNotFound, SagaPastPivot,
    SagaFinished.

    Example: postroad saga cancel 42 --reason "the customer called"
    """
    call = saga_calls.cancel(saga_id, reason or f"cancelled by {by}")
    return await AsyncBus(connection)._run(call)


async def redrive_messages(
    connection: AsyncConnection[Any], iids: Sequence[str], queue: str, consumer: str | None
) -> int:
    """Deliver dead messages of a consumer again. Raises QueueNotFound, ConsumerNotFound."""
    return await _on_each(connection, "redrive", iids, queue, qname=queue, cname=consumer)


async def move_messages(
    connection: AsyncConnection[Any],
    iids: Sequence[str],
    queue: str,
    consumer: str,
    state: State,
    destination: str,
) -> int:
    """Move messages to another queue with the same payload.

    Raises QueueNotFound, ConsumerNotFound, WrongPayload, InvalidArgument.
    """
    given = {"qname": queue, "cname": consumer, "state": state, "destination": destination}
    with _destination_known():
        return await _on_each(connection, "move", iids, destination, **given)


async def purge_messages(
    connection: AsyncConnection[Any],
    iids: Sequence[str],
    queue: str,
    consumer: str,
    state: State,
    search: str | None = None,
) -> int:
    """Delete messages of a consumer; `search` is that of their list, empty for a whole list.

    Raises QueueNotFound, ConsumerNotFound, InvalidArgument.
    """
    given = {"qname": queue, "cname": consumer, "state": state}
    if search == "" and state == "ready":
        # The queue's consume function removes whole batches without looking up each iid.
        return await AsyncBus(connection)._run(sql(int, "purge", **given, amt=len(iids)))
    return await _on_each(connection, "purge", iids, queue, **given)


async def take(connection: AsyncConnection[Any], iid: str) -> bool:
    """Remove a message for all consumers. Returns False if it no longer exists."""
    return await AsyncBus(connection).take(iid) is not None


async def _on_each(
    connection: AsyncConnection[Any], verb: str, iids: Sequence[str], woken: str, **given: Any
) -> int:
    """Call a function of the bus for each message; return the sum of its results."""
    # Verbs and parameter names come from this module, never from the caller.
    call = f"{named(verb, *given)[:-1]}, iid => m.iid)"
    text = f"select coalesce(sum({call}), 0)::bigint from unnest(%s::text[]) m(iid)"  # noqa: S608
    listed, names = (*given.values(), list(iids)), (given["qname"], given["cname"])
    changed: int = await AsyncBus(connection)._run(
        Call(text, listed, rows.value, *names, wakes=(woken,))
    )
    return changed


@contextmanager
def _destination_known() -> Iterator[None]:
    """Refuse the whole batch if its destination does not exist; a missing message is no error."""
    try:
        yield
    except QueueNotFound as missing:
        raise InvalidArgument(str(missing), hint=missing.hint) from missing
