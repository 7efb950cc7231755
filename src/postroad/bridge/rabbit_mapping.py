"""How a message of the bus looks as an AMQP message, and the other way round. Pure.

| bus | AMQP |
|---|---|
| iid | `message_id` |
| data: text, bytea; jsonb, hstore | body; as JSON with `content_type` application/json |
| each header | a header of the same name, besides: |
| header `priority` high, normal, low | `priority` 9, none, 1 |
| header `correlation` | `correlation_id` |
| header `content_type` | `content_type` |
| header `enqueue_time` | `timestamp` too (whole seconds) |
| each property | a header `property.<name>` |
| expires | header `expires`; `expiration`, the milliseconds that are left |
| delayed_until | header `delayed_until` |

A message that the bus sent has `app_id` postroad and comes back as it left. A message of somebody
else gets headers from its properties where it has no such header itself; values that are no text
become JSON. Where it came from is told by the headers `amqp_exchange` and `amqp_routing_key`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, DeliveryMode

from postroad.bridge.calls import ParsedBatch
from postroad.bridge.rabbit_limits import expiration, readable, timestamp
from postroad.bus.hstore import Hstore, dump, parse
from postroad.bus.payload import Payload

__all__ = ["Arrived", "arrive", "depart", "routing_key"]

APPLICATION = "postroad"
_PROPERTY = "property."
# Longer than any iid with the name of its database; an index entry has its limit.
IDENTITY_MOST = 255
_PRIORITIES = {"high": 9, "low": 1}
# Kept by the broker or made anew on arrival.
_NOT_HEADERS = frozenset(
    {"x-stream-offset", "x-delivery-count", "x-death", "expires", "delayed_until"}
)


def routing_key(template: str, queue: str, headers: Hstore, properties: Hstore) -> str:
    """Fill `{queue}`, and the names of headers and properties, into a routing key."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name == "queue":
            return queue
        return headers.get(name) or properties.get(name) or ""

    return re.sub(r"\{([A-Za-z0-9_.-]+)\}", fill, template)


def depart(batch: ParsedBatch, place: int, payload: Payload, now: datetime) -> aio_pika.Message:
    """Make the AMQP message of one message of a batch: persistent, with its iid as its id."""
    headers = parse(batch.headers[place])
    properties = parse(batch.properties[place] or "")
    table: dict[str, Any] = dict(headers)
    table.update({_PROPERTY + name: value for name, value in properties.items()})
    expires, delayed = batch.expires[place], batch.delayed[place]
    if expires is not None:
        table["expires"] = expires.isoformat()
    if delayed is not None:
        table["delayed_until"] = delayed.isoformat()
    body, content_type = _body(payload, batch.data[place])
    return aio_pika.Message(
        body,
        headers=table,
        message_id=batch.iids[place],
        app_id=APPLICATION,
        content_type=headers.get("content_type") or content_type,
        correlation_id=headers.get("correlation"),
        priority=_PRIORITIES.get(headers.get("priority") or ""),
        timestamp=timestamp(_moment(headers.get("enqueue_time"))),
        expiration=expiration(expires, now),
        delivery_mode=DeliveryMode.PERSISTENT,
    )


def _body(payload: Payload, data: str) -> tuple[bytes, str]:
    match payload:
        case "text":
            return data.encode(), "text/plain"
        case "bytea":
            return bytes.fromhex(data.removeprefix("\\x")), "application/octet-stream"
        case "jsonb":
            return data.encode(), "application/json"
        case "hstore":
            return json.dumps(parse(data), ensure_ascii=False).encode(), "application/json"


@dataclass(frozen=True, slots=True)
class Arrived:
    """An AMQP message as the bus takes it; `problem` says why it cannot."""

    id: str | None
    data: str
    headers: str
    properties: str | None
    expires: datetime | None
    delayed: datetime | None
    problem: str | None = None


def arrive(message: AbstractIncomingMessage, payload: Payload, now: datetime) -> Arrived:
    """Read an AMQP message for a queue of some payload; never raises for what a sender wrote."""
    headers: dict[str, str | None] = {}
    properties: dict[str, str | None] = {}
    for name, value in message.headers.items():
        text = value if value is None or isinstance(value, str) else _text(value)
        if name.startswith(_PROPERTY):
            properties[name.removeprefix(_PROPERTY)] = text
        elif name not in _NOT_HEADERS:
            headers[name] = text
    is_ours = message.app_id == APPLICATION
    if not is_ours:
        _add_facts(headers, message)
    problem = None
    try:
        data = _data(payload, message.body)
    except (ValueError, RecursionError) as wrong:
        data, problem = "", f"the queue carries {payload}: {wrong}"
    identity = _identity(message, headers)
    if any("\x00" in text for text in _texts(headers, properties, identity)):
        problem = problem or "a header, a property or the message_id has a zero character"
        headers, properties, identity = _readable(headers), _readable(properties), None
    expires = _moment(_header(message, "expires"))
    if expires is None and message.expiration is not None:
        expires = now + _span(message.expiration)
    return Arrived(
        id=identity,
        data=data,
        headers=dump(headers),
        properties=dump(properties) or None,
        expires=expires,
        delayed=_moment(_header(message, "delayed_until")),
        problem=problem,
    )


def _texts(headers: Hstore, properties: Hstore, identity: str | None) -> Iterator[str]:
    for table in (headers, properties):
        yield from table
        yield from filter(None, table.values())
    yield identity or ""


def _readable(table: Hstore) -> dict[str, str | None]:
    return {readable(name): value and readable(value) for name, value in table.items()}


def _identity(message: AbstractIncomingMessage, headers: Hstore) -> str | None:
    """Tell by what a message is known again: where it was first posted, else its sender's id."""
    first, journey = headers.get("source_iid"), headers.get("seenby_nodes")
    found = re.match(r'\{"?([^,"]+)@', journey) if journey else None
    if first and found and len(first) + len(found[1]) < IDENTITY_MOST:
        return f"{first}/{found[1]}"
    return message.message_id


def _add_facts(headers: dict[str, str | None], message: AbstractIncomingMessage) -> None:
    facts = {
        "amqp_exchange": message.exchange,
        "amqp_routing_key": message.routing_key,
        "amqp_reply_to": message.reply_to,
        "amqp_type": message.type,
        "message_id": message.message_id,
        "correlation": message.correlation_id,
        "content_type": message.content_type,
        "enqueue_time": message.timestamp.isoformat() if message.timestamp else None,
        "priority": _priority(message.priority),
    }
    for name, value in facts.items():
        if value and not (name == "priority" and headers.get("group")):
            headers.setdefault(name, str(value))


def _priority(number: int | None) -> str | None:
    if not number:
        return None
    return "high" if number >= 7 else "low" if number <= 3 else None


def _data(payload: Payload, body: bytes) -> str:
    match payload:
        case "bytea":
            return "\\x" + body.hex()
        case "text":
            return _plain(body.decode())
        case "jsonb":
            json.loads(body)
            return _plain(body.decode())
        case "hstore":
            value = json.loads(body)
            if not isinstance(value, dict):
                raise ValueError("the body is no JSON object")  # noqa: TRY004 - a sender's fault
            return _plain(
                dump(
                    {
                        name: item if item is None or isinstance(item, str) else _text(item)
                        for name, item in value.items()
                    }
                )
            )


def _plain(text: str) -> str:
    if "\x00" in text:
        raise ValueError("text with a zero character")
    if not text.isascii():
        # JSON may name halves of characters, which no encoding has.
        text.encode()
    return text


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, default=str, ensure_ascii=False)


def _header(message: AbstractIncomingMessage, name: str) -> str | None:
    value = message.headers.get(name)
    return value if isinstance(value, str) else None


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        # PostgreSQL writes a zone of whole hours as +00, which Python reads from 3.11 on.
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _span(expiration: Any) -> timedelta:
    if isinstance(expiration, timedelta):
        return expiration
    return timedelta(seconds=float(expiration))
