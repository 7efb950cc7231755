"""Calls that create and change queues, consumers and triggers, pause them and replay messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import NoneType
from typing import Literal

from postroad.bus import payload as payloads
from postroad.bus.call import Call, OfQueue, sql
from postroad.bus.parameters import BEGINNING, Duration, length_or_none
from postroad.bus.payload import Payload


def create_queue(
    queue: str,
    ncons: int = 8,
    is_roles_security_model: bool = False,
    payload: Payload = "hstore",
) -> Call[None]:
    """Create a queue with consumer `default`; rebuild an existing one, keeping its messages.

    An existing queue keeps its ncons and its roles, see `alter_queue`.
    Raises QueueExists if its payload differs, and InvalidName, NameTooLong.
    """
    shape = {"ncons": ncons, "is_roles_security_model": is_roles_security_model}
    call = sql(NoneType, "create_queue", qname=queue, **shape, **_named_payload(payload))
    return replace(call, reshapes=queue)


def _named_payload(payload: Payload) -> dict[str, Payload]:
    payloads.check(payload)
    # The default is not passed: its type would be resolved in the caller's search path.
    return {} if payload == "hstore" else {"payload": payload}


def alter_queue(
    queue: str,
    is_roles_security_model: bool | None = None,
    retain: Duration | None = None,
    retain_size: int | None = None,
    track: str | None = None,
    schema: Mapping[str, object] | bool | None = None,
) -> Call[None]:
    """Change a queue; None keeps a setting unchanged.

    `is_roles_security_model` restricts a plain queue to its own roles, or makes a restricted queue
    plain. `retain` keeps messages readable for this time after they were consumed, `retain_size`
    at most this many bytes of them; 0 turns either off. `track` is a property or a field of the
    payload by which stored messages are found; an empty text ends it. `schema` is a JSON Schema:
    posts whose data violates it raise WrongPayload; an empty one ends it. Raises QueueNotFound,
    RoleMissing, InvalidArgument, QueueBusy.
    """
    shape = {"qname": queue, "is_roles_security_model": is_roles_security_model, "track": track}
    sizes = {"retain": length_or_none("retain", retain), "retain_size": retain_size}
    rules = None if schema is None else payloads.parameter("jsonb", schema)
    return sql(NoneType, "alter_queue", **shape, **sizes, schema=rules)


def drop_queue(queue: str) -> Call[None]:
    """Drop a queue with its messages, consumers and roles. Raises QueueNotFound."""
    return replace(sql(NoneType, "drop_queue", qname=queue), reshapes=queue)


def create_consumer(
    queue: str,
    consumer: str,
    selector: str | None = None,
    noindex: bool = False,
    start_from: datetime | Literal["earliest"] | None = None,
    contract: Literal["message", "cursor"] = "message",
) -> Call[None]:
    """Add a durable subscriber; it gets its own copy of each matching message from now on.

    The selector is SQL over `t`: "(t.properties->'STATE')='DONE'". With `start_from` it also gets
    the messages that were posted since then and are retained or not consumed yet; it is paused
    until maintenance has posted them, see `replays`. With `contract="cursor"` messages are taken in
    order, one batch at a time, and only a cursor is stored: less work for the server, but no
    selectors, groups and leases. Raises QueueNotFound, ConsumerExists, InvalidSelector,
    InvalidArgument, and InvalidName, NameTooLong, NameCollision.
    """
    given = {"qname": queue, "cname": consumer, "selector": selector, "noindex": noindex}
    start = start_from.isoformat() if isinstance(start_from, datetime) else start_from
    return sql(NoneType, "create_consumer", **given, start_from=start, contract=contract)


def drop_consumer(queue: str, consumer: str) -> Call[None]:
    """Drop a subscriber with its copies. Raises ConsumerNotFound, LastConsumer."""
    return sql(NoneType, "drop_consumer", qname=queue, cname=consumer)


def alter_consumer(
    queue: str,
    consumer: str,
    max_attempts: int | None = None,
    backoff: Duration | None = None,
    backoff_max: Duration | None = None,
) -> Call[None]:
    """Change when a consumer retries and gives up; None keeps a setting unchanged."""
    pauses = {"backoff": backoff, "backoff_max": backoff_max}
    settings = {name: length_or_none(name, value) for name, value in pauses.items()}
    of = {"qname": queue, "cname": consumer, "max_attempts": max_attempts}
    return sql(NoneType, "alter_consumer", **of, **settings)


def limit_consumer(
    queue: str,
    consumer: str = "default",
    rate: float | None = None,
    burst: int | None = None,
    concurrency: int | None = None,
    key: str | None = None,
    key_rate: float | None = None,
    key_concurrency: int | None = None,
) -> Call[None]:
    """Set all limits of a consumer; a limit that is not given is removed.

    `rate` (per second) and `concurrency` apply to all clients together. With `key`, a property or
    header, messages are taken in turns by its values, and `key_rate` and `key_concurrency` apply to
    each value. Raises QueueNotFound, ConsumerNotFound, InvalidArgument, QueueBusy.
    """
    limits = {"rate": rate, "burst": burst, "concurrency": concurrency, "key": key}
    limits |= {"key_rate": key_rate, "key_concurrency": key_concurrency}
    call = sql(NoneType, "limit_consumer", qname=queue, cname=consumer, **limits)
    return replace(call, wakes=(queue,))


def replay(
    queue: str,
    consumer: str = "default",
    since: datetime | None = None,
    until: datetime | None = None,
    selector: str | None = None,
    rate: int | None = None,
    again: bool = False,
    started_by: str | None = None,
) -> Call[int]:
    """Post consumed messages to one consumer again; return the id of the replay, see `replays`.

    Maintenance posts them, at most `rate` per second, with the same iids and the header `replayed`.
    `since` and `until` are times of posting. Repeating a call continues its replay; `again` begins
    another one. Raises QueueNotFound, ConsumerNotFound, InvalidSelector, InvalidArgument.
    """
    past = {"qname": queue, "cname": consumer, "since": since or BEGINNING, "until": until}
    more = {"selector": selector, "rate": rate, "again": again, "started_by": started_by}
    return sql(int, "replay", **past, **more)


def count_replay(
    queue: str,
    consumer: str = "default",
    since: datetime | None = None,
    until: datetime | None = None,
    selector: str | None = None,
) -> Call[int]:
    """Count the messages that `replay` would post, by reading them. Read-only."""
    past = {"qname": queue, "cname": consumer, "since": since or BEGINNING, "until": until}
    return sql(int, "count_replay", **past, selector=selector)


def stop_replay(id: int, stopped_by: str | None = None) -> Call[bool]:
    """Stop a replay; posted messages stay. Returns False if it had ended."""
    return sql(bool, "stop_replay", id=id, stopped_by=stopped_by)


def continue_replay(id: int) -> Call[bool]:
    """Continue a replay that was stopped or failed. Returns False if it was neither."""
    return sql(bool, "continue_replay", id=id)


def pause(
    queue: str,
    consumer: str | None = None,
    reason: str | None = None,
    paused_by: str | None = None,
) -> Call[bool]:
    """Let a consumer, or all consumers of a queue, take nothing until it is resumed.

    Posts continue, and held leases can be acked. Returns False if it was already paused. Raises
    QueueNotFound, ConsumerNotFound, and InvalidArgument for the queue of sagas.
    """
    given = {"qname": queue, "cname": consumer, "reason": reason, "paused_by": paused_by}
    return sql(bool, "pause", **given)


def resume(queue: str, consumer: str | None = None) -> Call[bool]:
    """End the pause of a consumer, or of a queue; return False if it was not paused.

    A consumer that was paused itself stays paused when its queue is resumed.
    Raises QueueNotFound, ConsumerNotFound.
    """
    return replace(sql(bool, "resume", qname=queue, cname=consumer), wakes=(queue,))


def create_trigger(source: str, destination: str, selector: str | None = None) -> Call[None]:
    """From now on, copy messages of one queue that match the selector to another queue.

    Raises QueueNotFound, InvalidSelector, TriggerExists, TriggerLoop.
    """
    names = {"src_queue_name": source, "dst_queue_name": destination}
    return sql(NoneType, "create_trigger", **names, selector=selector)


def drop_trigger(source: str, destination: str) -> Call[None]:
    """Stop copying. Raises QueueNotFound, TriggerNotFound."""
    return sql(NoneType, "drop_trigger", src_queue_name=source, dst_queue_name=destination)


def create_temporary_queue(payload: Payload = "hstore") -> Call[str]:
    """Create a queue that belongs to the session of the caller's connection; return its name.

    Any user can post to it with `mbus.post`, only this session can take from it, and it is dropped
    with the session. Raises InvalidArgument if the bus has no connection of the caller's.
    """
    call = sql(str, "create_temporary_queue", **_named_payload(payload))
    return replace(call, makes=payload, needs_session=True)


def create_temporary_consumer(queue: str, selector: str | None = None) -> OfQueue[str]:
    """Receive copies of messages posted to a queue from now on; return the queue of the copies.

    It is dropped with the session of the caller's connection. Only admins of the bus may use a
    selector. Raises QueueNotFound, InvalidSelector, RoleMissing, and InvalidArgument if the
    bus has no connection of the caller's.
    """
    call = sql(str, "create_temporary_consumer", qname=queue, selector=selector)
    return OfQueue(queue, lambda payload: replace(call, makes=payload, needs_session=True))
