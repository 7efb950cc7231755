"""Payload types of queues and their conversion between Python and the server.

| queue's payload | Python posts | Python receives |
|---|---|---|
| hstore | mapping of str to str or None | dict |
| jsonb | any JSON value | the same |
| text | str | str |
| bytea | bytes, bytearray, memoryview | bytes |

A value of another type is refused before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from postroad.bus import hstore
from postroad.bus.errors import InvalidArgument, QueueNotFound, WrongPayload

Payload: TypeAlias = Literal["hstore", "jsonb", "text", "bytea"]

PAYLOADS: tuple[Payload, ...] = get_args(Payload)


def check(name: str) -> None:
    """Raise InvalidArgument for a type that no queue can carry."""
    if name not in PAYLOADS:
        raise InvalidArgument(
            f"{name} is not a payload type", hint=f"choose one of {', '.join(PAYLOADS)}"
        )


def of_queue(queue: str, name: str | None) -> Payload:
    """Return the payload type that mbus.queues shows. Raises QueueNotFound for None."""
    if name is None:
        raise QueueNotFound(
            f'queue "{queue}" does not exist',
            hint="create it with mbus.create_queue; see mbus.queues",
            queue=queue,
        )
    return cast("Payload", name)


def parameter(payload: Payload, value: object) -> str | bytes:
    """Adapt one payload to the parameter of its post function; raise WrongPayload."""
    try:
        match payload:
            case "hstore" if isinstance(value, Mapping):
                return hstore.dump(cast("hstore.Hstore", value))
            case "jsonb":
                return hstore.storable(_json(value))
            case "text" if isinstance(value, str):
                return hstore.storable(value)
            case "bytea" if isinstance(value, bytes | bytearray | memoryview):
                return bytes(value)
    except (TypeError, ValueError) as error:
        raise _wrong(payload, str(error)) from error
    raise _wrong(payload, f"the queue carries {payload}, not {type(value).__name__}")


def text(payload: Payload, value: object) -> str:
    """Adapt one payload to a parameter of type text; raise WrongPayload."""
    adapted = parameter(payload, value)
    return "\\x" + adapted.hex() if isinstance(adapted, bytes) else adapted


def parse(payload: Payload, text: str) -> Any:
    """Parse a payload that a person typed: JSON, the text itself, bytes as 00ff10.

    Raises WrongPayload.
    """
    try:
        match payload:
            case "text":
                return text
            case "bytea":
                return bytes.fromhex(text.removeprefix("\\x"))
        return json.loads(text)
    except ValueError as error:
        kind = "hexadecimal" if payload == "bytea" else "JSON"
        example = "00ff10" if payload == "bytea" else '{"number": "4711"}'
        raise WrongPayload(
            f"the queue carries {payload}, and this is not valid {kind}: {error}",
            hint=f"for example: {example}",
        ) from error


def array(payload: Payload, values: Iterable[object]) -> str:
    """Adapt many payloads to one array parameter; raise WrongPayload."""
    return hstore.array_literal(text(payload, value) for value in values)


def mapping(value: Any) -> hstore.Hstore:
    """Convert an hstore column to a mapping: from text, or from the caller's own adapter."""
    if type(value) is str:
        return hstore.parse(value)
    return value or {}


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _wrong("jsonb", f"not a JSON value: {error}") from error


def _wrong(payload: Payload, message: str) -> WrongPayload:
    hints = {
        "hstore": "pass a mapping of strings to strings or None",
        "jsonb": "pass dicts, lists, strings, finite numbers, booleans or None",
        "text": "pass a str without NUL; use a bytea queue for binary data",
        "bytea": "pass bytes",
    }
    return WrongPayload(message, hint=hints[payload])
