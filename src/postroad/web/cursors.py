"""Opaque cursors: the key after which the next page of a list begins.

Keyset paging: the millionth page costs the same as the first, and rows that are inserted or deleted
between two calls neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from postroad.web.errors import CursorInvalid


def encode_cursor(*key: Any) -> str:
    """Write the key of a row as a cursor; parts are text, numbers or null."""
    text = json.dumps(key, separators=(",", ":"), default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """Read a cursor back; its parts must be of the given kinds."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as failure:
        raise CursorInvalid("the cursor cannot be read", hint="begin without one") from failure
    fits = isinstance(key, list) and len(key) == len(kinds)
    # A bool is an int in Python but not a valid number here; a number has 64 bits.
    if not fits or not all(
        isinstance(part, kind)
        and not isinstance(part, bool)
        and not (isinstance(part, int) and abs(part) >= 2**63)
        for part, kind in zip(key, kinds, strict=True)
    ):
        raise CursorInvalid("the cursor belongs to another list", hint="begin without one")
    return tuple(key)
