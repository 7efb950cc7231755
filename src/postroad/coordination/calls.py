"""Every statement that the services run, by name. Functions of schema coordination do the work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads

from postroad.coordination.errors import translate

__all__ = ["read_exactly", "said", "said_async"]

# Python refuses to convert integers of more digits.
MAX_INTEGER_DIGITS = 4300

EVENTS = "co_events"
VOTES = "co_votes"
DECISIONS = "co_decide"

BECOME = "select coordination.become(%s, %s)"
TRACK = "select coordination.track(%s, %s, %s, %s)"
REPLICATE = "select coordination.replicate(%s, %s, %s)"
PUBLISH = "select coordination.publish(%s)"
PULL = (
    "select page::text, events, payloads, more, next_position, next_sequence"
    " from coordination.pull(%s, %s, %s)"
)
CURSOR = "select position, sequence, has_snapshot, needs_snapshot from coordination.progress"
STAGE = "select coordination.stage(%s::jsonb)"
ATTEND = "select coordination.attend(%s)"
ANNOUNCE = "select coordination.announce()"
CONFIGURE_READER = (
    "update coordination.progress set wait = %s, max_attempts = %s, has_checks = %s"
    " where (wait, max_attempts, has_checks) is distinct from (%s, %s, %s)"
)
WAITING_FOR_CHECKS = (
    "select event_id from coordination.staging"
    " where vote is null and outcome is null and reason = 'waits for checks' order by position"
)
STAGED_PAYLOADS = (
    'select "Entity", "Operation", "Content" from coordination."AppEventPayload"'
    ' where "AppEventId" = %s order by "Sequence"'
)
VOTE = "select coordination.vote(%s, %s)"
WATCH = "select coordination.watch(%s, %s)"
PURGE = "select coordination.purge(%s, %s)"

# One statement takes messages and does what they say, so one commit does both.
DROP_EVENTS = "select count(*) from mbus.consumen_co_events_by_reader(1000)"


def read_exactly(cursor: psycopg.AsyncCursor[Any]) -> None:
    """Let the cursor read JSON numbers that have a fraction as Decimal instead of float."""
    set_json_loads(_load_exactly, cursor)


def _load_exactly(text: str | bytes) -> Any:
    return json.loads(
        text,
        parse_float=Decimal,
        parse_int=lambda digits: (int if len(digits) < MAX_INTEGER_DIGITS else Decimal)(digits),
    )


@contextmanager
def said() -> Iterator[None]:
    """Raise the room's errors instead of the driver's."""
    try:
        yield
    except psycopg.Error as error:
        translated = translate(error)
        if translated is None:
            raise
        raise translated from error


@asynccontextmanager
async def said_async() -> AsyncIterator[None]:
    """Raise the room's errors instead of the driver's."""
    with said():
        yield
