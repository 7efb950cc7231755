r"""Reading what a sender wrote badly, instead of losing the connection over it each time.

AMQP says that short texts are UTF-8 and timestamps are seconds, and RabbitMQ passes on whatever a
sender wrote. The driver gives its connection up over a text that is not UTF-8 or a moment beyond
the year 9999; the message would come again, and nothing behind it would ever arrive. So the driver
is taught to read on: bad bytes become `\xff`, a moment that cannot be is none.
"""

from __future__ import annotations

import struct
from typing import Any

from pamqp import decode

__all__ = ["read_leniently"]

_short_str, _timestamp = decode.short_str, decode.timestamp
_TIMESTAMP_BYTES = 8


def read_leniently() -> None:
    """Teach the driver of this process; a second call changes nothing."""
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
