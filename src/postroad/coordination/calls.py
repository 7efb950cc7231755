"""The statements of the services; functions of schema coordination do the work."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads

from postroad.postgres.calls import Connection

# Python refuses to convert longer integers.
MAX_INTEGER_DIGITS = 4300

EVENTS = "co_events"
VOTES = "co_votes"
DECISIONS = "co_decide"

# Notices between the services: the Writer has captured events, or published some.
CHANNEL = "coordination"
CAPTURED = "captured"
PUBLISHED = "published"

PULL = (
    "select page::text, events, more, next_position, next_sequence, afters, befores"
    " from coordination.pull(%s, %s, %s, 2)"
)
CURSOR = "select position, sequence, has_snapshot, needs_snapshot from coordination.progress"
STAGE = "select coordination.stage(%s::jsonb, %s, %s)"
WAITING_FOR_CHECKS = (
    "select event_id from coordination.staging"
    " where vote is null and outcome is null and reason = 'waits for checks' order by position"
)
STAGED_PAYLOADS = (
    'select "Entity", "Operation", "Content" from coordination."AppEventPayload"'
    ' where "AppEventId" = %s order by "Sequence"'
)


class TextArray(bytes):
    """An array of texts in PostgreSQL's binary format: passed on without being decoded."""


class _TextArrayLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> TextArray:
        return TextArray(data)


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = psycopg.adapters.types["text"].array_oid

    def dump(self, obj: TextArray) -> Buffer:
        return obj


def pass_arrays(connection: Connection) -> None:
    """Make the connection read and write arrays of texts as TextArray."""
    connection.adapters.register_loader(_TextArrayDumper.oid, _TextArrayLoader)
    connection.adapters.register_dumper(TextArray, _TextArrayDumper)


def _integer(digits: str) -> int | Decimal:
    return (int if len(digits) < MAX_INTEGER_DIGITS else Decimal)(digits)


# One object for all cursors: the driver keeps classes for each function that it gets.
_LOADS = partial(json.loads, parse_float=Decimal, parse_int=_integer)


def read_exactly(cursor: psycopg.AsyncCursor[Any]) -> None:
    """Make the cursor read JSON numbers that have a fraction as Decimal instead of float."""
    set_json_loads(_LOADS, cursor)
