"""What operators of coordination can list and do, at the Coordinator; see `postroad.operate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import get_args

from postroad.coordination import operations, status
from postroad.coordination.errors import EventNotFound, ReaderNotFound
from postroad.operate import Action, Column, Filter, Journey, Resource, Row
from postroad.postgres.calls import Connection

_READER = (
    Column("reader", "Reader", "Читатель"),
    Column("state", "State", "Состояние", "state"),
    Column("is_parked", "Parked", "Остановлено", "boolean"),
    Column("progress", "Progress", "Продвижение"),
    Column("vote", "Vote", "Голос", "state"),
    Column("attempts", "Attempts", "Попытки", "number"),
    Column("reason", "Reason", "Причина"),
)
_STEP = (
    Column("after_ms", "After, ms", "Спустя, мс", "number"),
    Column("state", "State", "Состояние", "state"),
    Column("by", "By", "Участник", "word"),
    Column("reader", "Reader", "Читатель"),
    Column("at", "At", "Время", "moment"),
    Column("note", "Note", "Примечание"),
)


async def _event(connection: Connection, event_id: str) -> Row:
    """Read an event with its readers and its timeline. Raises EventNotFound."""
    found = await status.event(connection, int(event_id) if str(event_id).isdecimal() else 0)
    began = found.timeline[0].at if found.timeline else found.event.created_at
    readers = [{**asdict(one), "progress": f"{one.staged}/{one.payloads}"} for one in found.readers]
    steps = [
        {"after_ms": round((one.at - began).total_seconds() * 1000), **asdict(one)}
        for one in found.timeline
    ]
    event = asdict(found.event)
    # Scripts that read the command's JSON use this name.
    return {**event, "event": event, "readers": readers, "timeline": steps}


EVENTS = Resource(
    "coordination.events", "event",
    "(select e.*, e.finished_at - e.created_at as took from coordination.events e)",
    "List events, the latest first; or show one with its readers and its timeline.",
    (
        Column("event_id", "Event", "Событие", "id"),
        Column("position", "Position", "Позиция", "id", is_listed=False,
               index="position_belongs_to_one_event"),
        Column("state", "State", "Состояние", "state"),
        Column("mode", "Mode", "Режим", "state"),
        Column("type", "Type", "Тип"),
        Column("entities", "Entities", "Сущности", "list", is_listed=False),
        Column("payloads", "Rows", "Строки", "number"),
        Column("created_at", "Created", "Создано", "moment"),
        Column("finished_at", "Finished", "Завершено", "moment", is_listed=False),
        Column("took", "Took", "Заняло", "duration"),
        Column("deadline", "Deadline", "Срок", "moment", is_listed=False),
        Column("correlation_id", "Correlation", "Корреляция", "code", is_listed=False),
        Column("cancels", "Cancels", "Отменяет", "id", is_listed=False),
        Column("outcome", "Outcome", "Исход", "state", is_listed=False),
        Column("decided_at", "Decided", "Решено", "moment", is_listed=False),
        Column("reason", "Reason", "Причина"),
    ),
    (
        Filter("state", "State", "Состояние", choices=get_args(status.State)),
        Filter("entity", "Entity", "Сущность", "Only those that change this entity.",
               condition="%s = any (r.entities)", is_scan=True),
        Filter("unfinished", "Unfinished", "Не завершено", "Only those that are not finished.",
               condition="r.finished_at is null", is_flag=True),
    ),
    key="position", identity="event_id",
    example="postroad coordination events --entity DummyItem --unfinished", detail=_event,
    parts={"readers": _READER, "timeline": _STEP}, missing=EventNotFound,
    journey=Journey(
        ("event_id",), ("correlation_id",), "created_at", until="finished_at", place="type",
        error="reason",
    ),
)  # fmt: skip

READERS = Resource(
    "coordination.readers", "reader", "coordination.readers",
    "List the readers, how far they are and what is parked there.",
    (
        Column("reader", "Reader", "Читатель"),
        Column("is_voter", "Votes", "Голосует", "boolean"),
        Column("finished_to", "Finished to", "Завершено до", "id", is_listed=False),
        Column("behind", "Behind", "Отстаёт на", "number", is_sortable=True),
        Column("oldest_at", "Oldest", "Старейшее", "since", is_sortable=True),
        Column("parked", "Parked", "Остановлено", "alarm", is_sortable=True),
        Column("joined_at", "Joined", "Присоединён", "moment", is_listed=False),
        Column("heard_at", "Last contact", "Последняя связь", "moment", is_sortable=True),
    ),
    key="reader", is_descending=False, example="postroad coordination readers",
    missing=ReaderNotFound,
)  # fmt: skip

RETRY = Action(
    operations.retry, "event {event_id} {be} tried again", EVENTS, "Retry", "Повторить",
    when={"finished_at": (None,)}, is_bulk=True,
)  # fmt: skip
CANCEL = Action(
    operations.cancel, "event {event_id} {be} cancelled", EVENTS, "Cancel", "Отменить",
    when={"finished_at": (None,)}, is_danger=True,
)  # fmt: skip
SKIP = Action(
    operations.skip, "event {event_id} {be} skipped at {reader}", EVENTS, "Skip", "Пропустить",
    is_danger=True,
)  # fmt: skip
VOTER = Action(operations.set_voter, "reader {reader} {be} changed", READERS, name="voter")
