"""Events, their readers and their timelines. Read-only, for console, CLI and HTTP.

Everything but `entities` and `payloads` is read from the Coordinator's database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from inspect import get_annotations
from typing import Any, Literal, TypeVar
from uuid import UUID

from psycopg.rows import class_row

from postroad.coordination.calls import read_exactly
from postroad.coordination.errors import EventNotFound
from postroad.postgres.calls import Connection, Row, rows

T = TypeVar("T")

# The states of an event, in the order in which it may pass them.
State = Literal[
    "Created", "Saving", "Saved", "Activated", "Preparing", "Prepared", "Processing", "Processed",
    "Committing", "Committed", "Canceling", "Canceled",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventStatus:
    """An event as the Coordinator stores it."""

    event_id: int
    position: int
    state: str
    mode: str
    type: str
    entities: list[str]
    payloads: int
    created_at: datetime
    finished_at: datetime | None
    deadline: datetime | None
    correlation_id: UUID
    cancels: int | None
    outcome: str | None
    reason: str | None
    decided_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventReader:
    """The state of one event at one reader; `staged` of `payloads` is its progress."""

    reader: str
    state: str
    staged: int
    payloads: int
    vote: str | None
    reason: str | None
    attempts: int
    is_parked: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a timeline."""

    state: str
    at: datetime
    by: str
    reader: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class EventDetail:
    """An event with its readers and its timeline."""

    event: EventStatus
    readers: list[EventReader]
    timeline: list[Step]


@dataclass(frozen=True, slots=True)
class PayloadStatus:
    """One payload of an event, in the Writer's database or staged at a Reader."""

    sequence: int
    entity: str
    operation: str
    status: str
    content: dict[str, Any]
    before: dict[str, Any] | None = None


async def event(connection: Connection, event_id: int) -> EventDetail:
    """Return all details of one event. Raises EventNotFound."""
    return await _detail(connection, "coordination.events", event_id)


async def written_event(connection: Connection, event_id: int) -> EventDetail:
    """Return what the Writer's database stores of an event. Raises EventNotFound.

    Its position is 0 until it is published.
    """
    return await _detail(
        connection,
        '(select e."Id" as event_id, coalesce(e."Position", 0) as position,'
        ' coordination._status_name(e."AppEventStatusId") as state, e."Mode" as mode,'
        ' t."Name" as type, coalesce(e."Entities", array[t."Entity"]) as entities,'
        ' coalesce(e."PayloadCount", (select count(*) from coordination.payload_row p'
        ' where p.event_id = e."Id")) as payloads, e."Date" as created_at,'
        ' e."FinishedAt" as finished_at, null::timestamptz as deadline,'
        ' e."CorrelationId" as correlation_id, e."Cancels" as cancels, null::text as outcome,'
        ' e."Reason" as reason, null::timestamptz as decided_at from coordination."AppEvent" e'
        ' join coordination."AppEventType" t on t."Id" = e."AppEventTypeId") e',
        event_id,
    )


async def _detail(connection: Connection, relation: str, event_id: int) -> EventDetail:
    found = await _rows(connection, EventStatus, f"{relation} where event_id = %s", event_id)
    if not found:
        raise EventNotFound(
            f"there is no event {event_id}",
            hint="list them with: postroad coordination events",
            event=event_id,
        )
    readers = "coordination.event_readers where event_id = %s order by reader"
    steps = "coordination.event_history where event_id = %s order by at, place"
    return EventDetail(
        found[0],
        await _rows(connection, EventReader, readers, event_id),
        await _rows(connection, Step, steps, event_id),
    )


async def summary(connection: Connection) -> Row:
    """Count the events that are kept, those unfinished, those parked at a reader, and readers."""
    text = (
        'select count(*) as events, count(*) filter (where "FinishedAt" is null) as unfinished,'
        " (select count(*) from coordination.reader_event where is_parked) as parked,"
        ' (select count(*) from coordination.reader) as readers from coordination."WriterEvent"'
    )
    (found,) = await rows(connection, text)
    return found


async def entities(connection: Connection) -> list[dict[str, Any]]:
    """List the entities that the Writer's database tracks."""
    text = (
        "select name, role, schema_name, table_name, key_columns, columns, version, mode,"
        " on_conflict, level from coordination.entity where role = 'tracked' order by name"
    )
    return await rows(connection, text)


async def payloads(
    connection: Connection, event_id: int, *, after: int = 0, limit: int = 100
) -> list[PayloadStatus]:
    """List an event's payloads by page, in the Writer's database or staged at a Reader."""
    return await _rows(
        connection,
        PayloadStatus,
        '(select p."Sequence" as sequence, p."Entity" as entity, p."Operation" as operation,'
        ' s."Name" as status, p."Content" as content, q.before as before'
        ' from coordination."AppEventPayload" p'
        " join coordination.payload_row q"
        ' on q.event_id = p."AppEventId" and q.sequence = p."Sequence"'
        ' join coordination."AppEventPayloadStatus" s on s."Id" = p."AppEventPayloadStatusId"'
        ' where p."AppEventId" = %s and p."Sequence" > %s) p order by sequence limit %s',
        event_id,
        after,
        limit,
    )


async def _rows(
    connection: Connection, shape: type[T], source: str, *parameters: object
) -> list[T]:
    """Read the columns that are fields of the class."""
    names = ", ".join(get_annotations(shape))
    async with connection.cursor(row_factory=class_row(shape)) as cursor:
        read_exactly(cursor)
        query = f"select {names} from {source}"  # noqa: S608 - own names
        await cursor.execute(query.encode(), parameters)
        return await cursor.fetchall()
