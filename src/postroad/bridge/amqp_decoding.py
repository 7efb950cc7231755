r"""Decoding invalid AMQP values instead of losing the connection over them (docs/decisions/0047).

AMQP requires short strings in UTF-8 and timestamps in seconds, and RabbitMQ passes on whatever a
client sent. The driver closes its connection over a string that is not UTF-8 or a time after the
year 9999; RabbitMQ would deliver the message again, and nothing behind it would ever arrive. With
these decoders invalid bytes become `\xff` and an impossible time becomes None.
"""

from __future__ import annotations

import struct
from typing import Any

from pamqp import decode

_short_str, _timestamp = decode.short_str, decode.timestamp
_TIMESTAMP_BYTES = 8


def tolerate_invalid_values() -> None:
    """Replace the driver's decoders in this process; idempotent."""
    decode.METHODS.update(shortstr=_read_short, timestamp=_read_timestamp, table=_read_table)
    decode.TABLE_MAPPING.update({b"T": _read_timestamp, b"F": _read_table})


def _read_short(value: bytes) -> tuple[int, Any]:
    try:
        return _short_str(value)
    except UnicodeDecodeError:
        length = value[0]
        return length + 1, value[1 : length + 1].decode(errors="backslashreplace")


def _read_timestamp(value: bytes) -> tuple[int, Any]:
    try:
        return _timestamp(value)
    except (ValueError, OverflowError, OSError):
        if len(value) < _TIMESTAMP_BYTES:
            raise
        return _TIMESTAMP_BYTES, None


def _read_table(value: bytes) -> tuple[int, Any]:
    end = 4 + struct.unpack_from(">I", value)[0]
    if end > len(value):
        raise ValueError("a table is longer than its frame")
    found: dict[str, Any] = {}
    offset = 4
    while offset < end:
        length, name = _read_short(value[offset:])
        offset += length
        length, found[name] = decode.embedded_value(value[offset:])
        offset += length
    return end, found
