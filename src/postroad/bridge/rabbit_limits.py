"""What AMQP can carry, and what PostgreSQL can keep of it. Pure.

A message beyond these limits would break the channel or the transaction each time it is tried, and
hold up all that come behind it. So it is told apart before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import aio_pika

__all__ = ["expiration", "readable", "timestamp", "unfit"]

SHORT_TEXT_MOST = 255
HEADER_NAME_MOST = 128
# All headers and properties travel in one frame, and brokers are set to 128 KiB a frame.
HEADERS_MOST = 130_000
# RabbitMQ refuses more milliseconds than 32 bits hold. The header `expires` has no such limit.
EXPIRATION_MOST = timedelta(milliseconds=2**32 - 1)
_FIRST_TIMESTAMP = datetime(1970, 1, 1, tzinfo=UTC)
# No character has more bytes.
_BYTES_MOST = 4


def unfit(message: aio_pika.Message, routing_key: str) -> str | None:
    """Say why AMQP cannot carry a message; None when it can."""
    for what, text in (
        ("routing key", routing_key),
        ("correlation", message.correlation_id),
        ("content_type", message.content_type),
        ("message_id", message.message_id),
    ):
        if text and _is_longer(text, SHORT_TEXT_MOST):
            return f"its {what} is longer than the {SHORT_TEXT_MOST} bytes that AMQP takes"
    characters = 0
    for name, value in message.headers.items():
        if _is_longer(name, HEADER_NAME_MOST):
            return f"a header's name is longer than {HEADER_NAME_MOST} bytes: {name[:40]}…"
        characters += len(name) + len(value) if isinstance(value, str) else 8
    if characters * _BYTES_MOST > HEADERS_MOST and _headers_size(message) > HEADERS_MOST:
        return f"its headers and properties are longer than {HEADERS_MOST} bytes together"
    return None


def _is_longer(text: str, most: int) -> bool:
    return len(text) * _BYTES_MOST > most and len(text.encode()) > most


def _headers_size(message: aio_pika.Message) -> int:
    # A name has its length before it, a value its type and its length.
    return sum(
        6 + len(name.encode()) + len(value.encode() if isinstance(value, str) else b"12345678")
        for name, value in message.headers.items()
    )


def expiration(expires: datetime | None, now: datetime) -> timedelta | None:
    """Tell how long RabbitMQ may keep a message; None where it takes no such number."""
    if expires is None:
        return None
    rest = max(timedelta(0), expires - now)
    return rest if rest <= EXPIRATION_MOST else None


def timestamp(moment: datetime | None) -> datetime | None:
    """Give a moment that AMQP can write down: seconds since 1970."""
    return moment if moment is not None and moment >= _FIRST_TIMESTAMP else None


def readable(text: str) -> str:
    """Make a text that PostgreSQL can keep, for people to read: it takes no zero character."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()
