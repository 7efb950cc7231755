"""Messages of Kombu as the text that the bus carries, and back. Pure."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

MAX_LEVEL = 9
MAX_DEPTH = 100

Delivery = dict[str, Any]


def encode(message: Delivery) -> str:
    """Return a message as text. JSON escapes characters that PostgreSQL cannot store."""
    body = message["body"]
    if isinstance(body, bytes | bytearray | memoryview):
        properties = {**message["properties"], "body_encoding": "base64"}
        text = base64.b64encode(bytes(body)).decode("ascii")
        message = {**message, "body": text, "properties": properties}
    return json.dumps(message, separators=(",", ":"), default=str)


def decode(text: str, queue: str, tag: str, is_redelivered: bool) -> Delivery:
    """Return the message that a text contains.

    Raises for any text that is not a message of Kombu. Headers are checked where a wrong value
    would pass Celery's own checks and raise later, in the loop of the worker.
    """
    message: Delivery = json.loads(text)
    properties = message["properties"]
    headers = message.get("headers")
    if _depth(properties) > MAX_DEPTH or _depth(headers) > MAX_DEPTH:
        # The worker pickles the headers for its pool, and pickling recurses.
        raise ValueError("headers or properties are nested too deeply")
    if isinstance(headers, dict) and headers.get("timelimit") is not None:
        hard, soft = headers["timelimit"]
        if not all(isinstance(limit, int | float | None) for limit in (hard, soft)):
            raise TypeError("timelimit is not a pair of numbers")
    properties["delivery_tag"] = tag
    information = properties.setdefault("delivery_info", {})
    information["redelivered"] = is_redelivered
    information.setdefault("queue", queue)
    return message


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return 0
    return 1 + max(map(_depth, value), default=0)


def level_of(message: Delivery) -> int:
    """Return the priority, 0 to 9; the highest is served first, as in AMQP."""
    try:
        return min(max(int(message["properties"].get("priority") or 0), 0), MAX_LEVEL)
    except (TypeError, ValueError):
        return 0


def due_at(message: Delivery) -> datetime | None:
    """Return when the task is to run, None for now; an invalid ETA is left to the worker."""
    eta = (message.get("headers") or {}).get("eta")
    if not eta:
        return None
    try:
        due = eta if isinstance(eta, datetime) else datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        return None
    return due if due.tzinfo is not None else due.replace(tzinfo=UTC)


def expires_at(message: Delivery, ttl: timedelta | None, due: datetime | None) -> datetime | None:
    """Return when a message expires: by its own or its queue's time to live."""
    limits = [] if ttl is None else [ttl]
    expiration = message["properties"].get("expiration")
    if expiration not in (None, ""):
        limits.append(timedelta(milliseconds=int(expiration)))
    now = datetime.now(UTC)
    return max(due or now, now) + min(limits) if limits else None


def moment(value: datetime | None) -> str | None:
    """Return a time as text for PostgreSQL."""
    return value.isoformat() if value is not None else None
