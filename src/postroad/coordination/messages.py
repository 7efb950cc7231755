"""The messages between services, as JSON Schemas: version 1.

| kind | queue | says |
|---|---|---|
| `events` | `co_events` | the Writer has these events, in this order |
| `progress` | `co_votes` | a Reader has finished everything up to a position; votes, refusals |
| `decisions` | `co_decide` | what was decided; up to where every Reader has finished |
| `ask` | `co_decide` | a Reader shall say how far it is |
| `retry` | `co_decide` | an event shall be tried again |
| `skip` | `co_decide` | a Reader shall drop a parked event |
| `snapshot` | `co_decide` | a Reader was removed and is back: it shall take a snapshot |

A message may come twice, late or never: it repeats facts that are in the sender's database. Fields
may be added within a version; a receiver ignores those that it does not know and refuses a version
that it does not know.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

_ID = {"type": "integer", "minimum": 1}
_TIME = {"type": "string", "format": "date-time"}
_TEXT_OR_NULL = {"type": ["string", "null"]}


def _message(kind: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind,
        "type": "object",
        "required": ["version", "kind", *required],
        "properties": {"version": {"const": 1}, "kind": {"const": kind}, **properties},
    }


_EVENT = {
    "type": "object",
    "required": ["id", "position", "count", "mode", "type", "entities", "date", "correlation_id"],
    "properties": {
        "id": _ID,
        "position": _ID,
        "count": {"type": "integer", "minimum": 0},
        "mode": {"enum": ["replicate", "two-phase"]},
        "type": {"type": "string"},
        "entities": {"type": "array", "items": {"type": "string"}},
        "date": _TIME,
        "published_at": _TIME,
        "correlation_id": {"type": "string", "format": "uuid"},
        "cancels": {"type": ["integer", "null"]},
        "traceparent": _TEXT_OR_NULL,
        "rollback": _TEXT_OR_NULL,
    },
}
_REPORT = {
    "type": "object",
    "required": ["id", "position", "state", "staged", "at"],
    "properties": {
        "id": _ID,
        "position": _ID,
        "state": {
            "enum": ["Preparing", "Prepared", "Processing", "Processed", "Committed", "Canceled"]
        },
        "staged": {"type": "integer", "minimum": 0},
        "vote": {"enum": ["yes", "no", None]},
        "reason": _TEXT_OR_NULL,
        "attempts": {"type": "integer", "minimum": 0},
        "is_parked": {"type": "boolean"},
        "at": _TIME,
        "history": {"type": ["array", "null"]},
    },
}
_DECISION = {
    "type": "object",
    "required": ["id", "position", "outcome"],
    "properties": {
        "id": _ID,
        "position": _ID,
        "outcome": {"enum": ["commit", "cancel"]},
        "reason": _TEXT_OR_NULL,
    },
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "events": _message(
        "events",
        ["writer", "events"],
        writer={"type": "string"},
        finished_to={"type": "integer", "minimum": 0},
        events={"type": "array", "items": _EVENT, "minItems": 1, "maxItems": 500},
    ),
    "progress": _message(
        "progress",
        ["reader", "finished_to", "at", "events"],
        reader={"type": "string"},
        generation={"type": "integer", "minimum": 0},
        finished_to={"type": "integer", "minimum": 0},
        at=_TIME,
        events={"type": "array", "items": _REPORT},
    ),
    "decisions": _message(
        "decisions",
        ["finished_to", "finished", "decisions"],
        finished_to={"type": "integer", "minimum": 0},
        finished={"type": "array", "items": _ID, "maxItems": 5000},
        decisions={"type": "array", "items": _DECISION},
    ),
    "ask": _message("ask", ["reader"], reader={"type": "string"}),
    "retry": _message("retry", ["id"], id=_ID, reader=_TEXT_OR_NULL),
    "skip": _message("skip", ["id", "reader"], id=_ID, reader={"type": "string"}),
    "snapshot": _message(
        "snapshot",
        ["reader", "generation", "newest"],
        reader={"type": "string"},
        generation={"type": "integer", "minimum": 0},
        newest={"type": "integer", "minimum": 0},
    ),
}
