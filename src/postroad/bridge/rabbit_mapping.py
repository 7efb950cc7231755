"""Messages of the bus as AMQP messages and the reverse, and what AMQP can carry. Pure.

| bus | AMQP |
|---|---|
| iid | `message_id` |
| data: text, bytea; jsonb, hstore | body; as JSON with `content_type` application/json |
| each header | a header of the same name, besides: |
| headers `ce_…` of a CloudEvent | headers `cloudEvents:…`; `cloudEvents_…` is read, too |
| header `priority` high, normal, low | `priority` 9, none, 1 |
| header `correlation` | `correlation_id` |
| header `content_type` | `content_type` |
| header `enqueue_time` | `timestamp` too (whole seconds) |
| each property | a header `property.<name>` |
| expires | header `expires`; `expiration`, the milliseconds that are left |
| delayed_until | header `delayed_until` |

A message that the bus sent has `app_id` postroad and is restored unchanged. A message of another
application gets headers from its properties where it has no such header itself; values that are
not text become JSON. The headers `amqp_exchange` and `amqp_routing_key` name its origin.

A message beyond the limits of AMQP or PostgreSQL would break the channel or the transaction every
time, and block all messages behind it, so it is detected before it is sent or posted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from aio_pika.abc import AbstractIncomingMessage, DeliveryMode
from pamqp.commands import Basic

from postroad.bridge.calls import Batch
from postroad.bus.hstore import Hstore, dump, parse
from postroad.bus.payload import Payload

APPLICATION = "postroad"
_PROPERTY = "property."
_PRIORITIES = {"high": 9, "low": 1}
# Added by the broker, or set again on arrival.
_NOT_HEADERS = frozenset(
    {"x-stream-offset", "x-delivery-count", "x-death", "expires", "delayed_until"}
)
# Longer than any iid with the name of its database, and short enough for an index entry.
MAX_IDENTITY_LENGTH = 255
MAX_SHORT_TEXT_BYTES = 255
MAX_HEADER_NAME_BYTES = 128
# All headers and properties travel in one frame; the usual limit of a broker is 128 KiB a frame.
MAX_HEADERS_BYTES = 130_000
# RabbitMQ refuses more milliseconds than 32 bits hold. The header `expires` has no such limit.
MAX_EXPIRATION = timedelta(milliseconds=2**32 - 1)
MAX_CHARACTER_BYTES = 4
_FIRST_TIMESTAMP = datetime(1970, 1, 1, tzinfo=UTC)


def routing_key(template: str, queue: str, headers: Hstore, properties: Hstore) -> str:
    """Fill `{queue}`, and the names of headers and properties, into a routing key."""
    values = {**properties, **{name: value for name, value in headers.items() if value}}
    values["queue"] = queue
    return re.sub(r"\{([A-Za-z0-9_.-]+)\}", lambda found: values.get(found[1]) or "", template)


class _Properties(Basic.Properties):
    """Properties whose headers are texts; the driver takes five times as long to encode them."""

    def encode_property(self, name: str, value: Any) -> bytes:
        """Encode one property."""
        if name != "headers":
            return super().encode_property(name, value)
        parts: list[bytes] = []
        for key, item in value.items():
            encoded = key.encode()
            parts += (bytes((len(encoded),)), encoded)
            if item is None:
                parts.append(b"V")
            else:
                encoded = item.encode()
                parts += (b"S", len(encoded).to_bytes(4), encoded)
        table = b"".join(parts)
        return len(table).to_bytes(4) + table


class Departing(NamedTuple):
    """An AMQP message as the driver sends it; an `aio_pika.Message` would be converted to it."""

    body: bytes
    properties: Basic.Properties


def depart(batch: Batch, place: int, payload: Payload, now: datetime) -> Departing:
    """Create the AMQP message of one message of a batch: persistent, with its iid as its id."""
    headers = parse(batch.headers[place])
    table = dict(headers)
    if "ce_specversion" in headers:
        table = {re.sub("^ce_", "cloudEvents:", name): value for name, value in table.items()}
    for name, value in parse(batch.properties[place] or "").items():
        table[_PROPERTY + name] = value
    expires, delayed = batch.expires[place], batch.delayed[place]
    if expires is not None:
        table["expires"] = expires.isoformat()
    if delayed is not None:
        table["delayed_until"] = delayed.isoformat()
    left = None if expires is None else max(timedelta(0), expires - now)
    expiration = None
    if left is not None and left <= MAX_EXPIRATION:
        expiration = str(left // timedelta(milliseconds=1))
    sent = _moment(headers.get("enqueue_time"))
    body, content_type = _body(payload, batch.data[place])
    properties = _Properties(
        headers=cast("Any", table),
        message_id=batch.iids[place],
        app_id=APPLICATION,
        content_type=headers.get("content_type") or content_type,
        correlation_id=headers.get("correlation"),
        priority=_PRIORITIES.get(headers.get("priority") or "", 0),
        # AMQP counts seconds since 1970.
        timestamp=sent if sent is not None and sent >= _FIRST_TIMESTAMP else None,
        expiration=expiration,
        delivery_mode=DeliveryMode.PERSISTENT,
    )
    return Departing(body, properties)


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


def unfit(properties: Basic.Properties, routing_key: str) -> str | None:
    """Return why AMQP cannot carry a message; None when it can."""
    for what, text in (
        ("routing key", routing_key),
        ("correlation", properties.correlation_id),
        ("content_type", properties.content_type),
        ("message_id", properties.message_id),
    ):
        if text and _is_longer(text, MAX_SHORT_TEXT_BYTES):
            return f"its {what} is longer than the {MAX_SHORT_TEXT_BYTES} bytes that AMQP takes"
    characters = 0
    headers = properties.headers or {}
    for name, value in headers.items():
        if _is_longer(name, MAX_HEADER_NAME_BYTES):
            return f"a header's name is longer than {MAX_HEADER_NAME_BYTES} bytes: {name[:40]}…"
        characters += len(name) + len(value) if isinstance(value, str) else 8
    # It is encoded only if it could be too long.
    if characters * MAX_CHARACTER_BYTES > MAX_HEADERS_BYTES:
        # A name has its length before it, a value its type and its length.
        size = sum(
            6 + len(name.encode()) + (len(value.encode()) if isinstance(value, str) else 8)
            for name, value in headers.items()
        )
        if size > MAX_HEADERS_BYTES:
            return f"its headers and properties are longer than {MAX_HEADERS_BYTES} bytes together"
    return None


def _is_longer(text: str, limit: int) -> bool:
    return len(text) * MAX_CHARACTER_BYTES > limit and len(text.encode()) > limit


@dataclass(frozen=True, slots=True)
class Arrived:
    """An AMQP message converted for the bus, or the `problem` that prevents it."""

    id: str | None
    data: str
    headers: str
    properties: str | None
    expires: datetime | None
    delayed: datetime | None
    problem: str | None = None


def arrive(message: AbstractIncomingMessage, payload: Payload, now: datetime) -> Arrived:
    """Convert an AMQP message for a queue with this payload; invalid contents do not raise."""
    headers: dict[str, str | None] = {}
    properties: dict[str, str | None] = {}
    for name, value in message.headers.items():
        if name.startswith(_PROPERTY):
            properties[name.removeprefix(_PROPERTY)] = _text(value)
        elif name not in _NOT_HEADERS:
            headers[re.sub("^cloudEvents[:_]", "ce_", name)] = _text(value)
    if message.app_id != APPLICATION:
        _add_facts(headers, message)
    problem = None
    try:
        data = _data(payload, message.body)
    except (ValueError, RecursionError) as wrong:
        data, problem = "", f"the queue carries {payload}: {wrong}"
    identity = _identity(message, headers)
    texts = (*headers, *headers.values(), *properties, *properties.values(), identity)
    if any(text and "\x00" in text for text in texts):
        problem = problem or "a header, a property or the message_id has a NUL character"
        headers, properties, identity = _readable(headers), _readable(properties), None
    expires = _moment(message.headers.get("expires"))
    if expires is None and message.expiration is not None:
        left: Any = message.expiration
        expires = now + (left if isinstance(left, timedelta) else timedelta(seconds=float(left)))
    return Arrived(
        id=identity,
        data=data,
        headers=dump(headers),
        properties=dump(properties) or None,
        expires=expires,
        delayed=_moment(message.headers.get("delayed_until")),
        problem=problem,
    )


def readable(text: str) -> str:
    """Return a text that PostgreSQL can store: it accepts no NUL character."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()


def _readable(table: Hstore) -> dict[str, str | None]:
    return {readable(name): value and readable(value) for name, value in table.items()}


def _identity(message: AbstractIncomingMessage, headers: Hstore) -> str | None:
    """Return the id of a message in the ledger: its first iid, else its sender's id."""
    first, journey = headers.get("source_iid"), headers.get("seenby_nodes")
    found = re.match(r'\{"?([^,"]+)@', journey) if journey else None
    if first and found and len(first) + len(found[1]) < MAX_IDENTITY_LENGTH:
        return f"{first}/{found[1]}"
    return message.message_id


def _add_facts(headers: dict[str, str | None], message: AbstractIncomingMessage) -> None:
    number = message.priority or 0
    facts = {
        "amqp_exchange": message.exchange,
        "amqp_routing_key": message.routing_key,
        "amqp_reply_to": message.reply_to,
        "amqp_type": message.type,
        "message_id": message.message_id,
        "correlation": message.correlation_id,
        "content_type": message.content_type,
        "enqueue_time": message.timestamp.isoformat() if message.timestamp else None,
        "priority": "high" if number >= 7 else "low" if 0 < number <= 3 else None,
    }
    for name, value in facts.items():
        if value and not (name == "priority" and headers.get("group")):
            headers.setdefault(name, str(value))


def _data(payload: Payload, body: bytes) -> str:
    if payload == "bytea":
        return "\\x" + body.hex()
    value = json.loads(body) if payload != "text" else None
    if payload != "hstore":
        text = body.decode()
    elif isinstance(value, dict):
        text = dump({name: _text(item) for name, item in value.items()})
    else:
        raise ValueError("the body is no JSON object")
    if "\x00" in text:
        raise ValueError("text with a NUL character")
    if not text.isascii():
        # JSON may contain half of a surrogate pair, which cannot be encoded.
        text.encode()
    return text


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, default=str, ensure_ascii=False)


def _moment(text: Any) -> datetime | None:
    if not text or not isinstance(text, str):
        return None
    try:
        # PostgreSQL writes a zone of whole hours as +00, which Python reads from 3.11 on.
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
