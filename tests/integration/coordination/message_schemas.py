"""The messages between services, as JSON Schemas: version 1; see the README of the schema."""

from __future__ import annotations

from typing import Any

_ID = {"type": "integer", "minimum": 1}
_COUNT = {"type": "integer", "minimum": 0}
_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_STATES = ["Preparing", "Prepared", "Processing", "Processed", "Committed", "Canceled"]
# A field has the same type in every message.
_FIELDS: dict[str, dict[str, Any]] = {
    "at": _TIME,
    "attempts": _COUNT,
    "cancels": {"type": ["integer", "null"]},
    "correlation_id": {"type": "string", "format": "uuid"},
    "count": _COUNT,
    "date": _TIME,
    "entities": {"type": "array", "items": _TEXT},
    "finished": {"type": "array", "items": _ID, "maxItems": 5000},
    "finished_to": _COUNT,
    "generation": _COUNT,
    "history": {"type": ["array", "null"]},
    "id": _ID,
    "is_parked": {"type": "boolean"},
    "mode": {"enum": ["replicate", "two-phase"]},
    "newest": _COUNT,
    "outcome": {"enum": ["commit", "cancel"]},
    "position": _ID,
    "published_at": _TIME,
    "reader": _TEXT,
    "reason": _TEXT_OR_NULL,
    "rollback": _TEXT_OR_NULL,
    "staged": _COUNT,
    "state": {"enum": _STATES},
    "traceparent": _TEXT_OR_NULL,
    "type": _TEXT,
    "vote": {"enum": ["yes", "no", None]},
    "writer": _TEXT,
}


def _object(required: str, optional: str = "", **properties: Any) -> dict[str, Any]:
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "required": required.split(),
        "properties": {**{name: _FIELDS[name] for name in names if name in _FIELDS}, **properties},
    }


def _message(kind: str, required: str, optional: str = "", **properties: Any) -> dict[str, Any]:
    fixed = {"version": {"const": 1}, "kind": {"const": kind}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind,
        **_object(f"version kind {required}", optional, **fixed, **properties),
    }


_EVENT = _object(
    "id position count mode type entities date correlation_id",
    "published_at cancels traceparent rollback",
)
_REPORT = _object("id position state staged at", "vote reason attempts is_parked history")
_DECISION = _object("id position outcome", "reason")
_EVENTS = {"type": "array", "items": _EVENT, "minItems": 1, "maxItems": 500}
_REPORTS = {"type": "array", "items": _REPORT}
_DECISIONS = {"type": "array", "items": _DECISION}

SCHEMAS: dict[str, dict[str, Any]] = {
    "events": _message("events", "writer events", "finished_to", events=_EVENTS),
    "progress": _message("progress", "reader finished_to at events", "generation", events=_REPORTS),
    "decisions": _message("decisions", "finished_to finished decisions", decisions=_DECISIONS),
    "ask": _message("ask", "reader"),
    "retry": _message("retry", "id", reader=_TEXT_OR_NULL),
    "skip": _message("skip", "id reader"),
    "snapshot": _message("snapshot", "reader generation newest"),
}
