"""Intake: a message is durable before its sender is told.

```
temporary file, synchronised -> row in the journal -> rename, folder synchronised -> 201
```

The row is the decision, and it names the temporary file; from then on the redo can finish the rest.
Before it, what is left behind by a crash is a temporary file that nobody names, removed at the next
start. What arrives while a journal call is under way shares the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import orjson

from postroad.exchange.content import Content, digest_of
from postroad.exchange.desk import Desk
from postroad.exchange.errors import FileMissing, IdByCase, MessageConflict
from postroad.exchange.files import temporary_name
from postroad.exchange.placement import Move

__all__ = ["Arrival", "Intake", "Taken"]

INTAKE = "select * from exchange.intake(p_epoch => %s, p_items => %s::jsonb)"
BATCH_MOST = 64
CALLS_MOST = 2


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that comes in."""

    sender: str
    database: str
    id: str
    recipient: str | None
    order: int | None
    content: Content

    @property
    def digest(self) -> str:
        """What makes a second one the same."""
        content = self.content
        return digest_of(
            self.recipient, self.order, content.sha256, content.media_type, content.is_group
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to a sender: the same for the first time and for every repetition."""

    is_new: bool
    sequence: int
    name: str
    number: int


class Intake:
    """Takes messages in, many per journal call."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def take(self, arrival: Arrival) -> Taken:
        """Store a message durably. Raises MessageConflict, IdByCase, StorageFull, StorageFailed."""
        desk = self._desk
        desk.refuse_when_full()
        await desk.know_database(arrival.database)
        temporary = temporary_name()
        await self._write(arrival, temporary)
        is_used = True
        try:
            row = await self._record(item_of(arrival, temporary))
            is_used = row["temporary"] == temporary
            _refuse(row["answer"], arrival)
            await self._place(arrival, row, temporary)
        except (IdByCase, MessageConflict):
            is_used = False
            raise
        finally:
            if not is_used:
                with contextlib.suppress(OSError):
                    await desk.in_thread(
                        desk.storage.unlink, arrival.database, "Messages", temporary
                    )
        return Taken(row["answer"] == "new", row["sequence"], row["file_name"], row["number"])

    async def _write(self, arrival: Arrival, temporary: str) -> None:
        desk = self._desk
        write = (desk.storage.write, arrival.database, "Messages", temporary)
        try:
            await asyncio.get_running_loop().run_in_executor(
                desk.threads, *write, arrival.content.stored
            )
        except FileNotFoundError:
            # Somebody removed the folder: made anew.
            await desk.in_thread(desk.storage.make_database, arrival.database)
            await desk.in_thread(*write, arrival.content.stored)
        except OSError:
            # Once more through the one place that names failures.
            await desk.in_thread(*write, arrival.content.stored)

    async def _place(self, arrival: Arrival, row: dict[str, Any], temporary: str) -> None:
        if row["placed"] is not None:
            return
        desk = self._desk
        move = Move(
            number=row["number"],
            database=arrival.database,
            name=row["file_name"],
            folder=row["folder"],
            placed=None,
            temporary=row["temporary"],
            size=arrival.content.size,
            sha256=arrival.content.sha256,
            media_type=arrival.content.media_type,
            state="queued",
        )
        try:
            await desk.placement.place([move])
        except FileMissing:
            # The first try lost its file before it was acknowledged; this one brings it again.
            await desk.placement.place([_with(move, temporary)])
        desk.marks.place_later([move])

    async def _record(self, item: dict[str, Any]) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._running) < CALLS_MOST:
            task = asyncio.get_running_loop().create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await future

    async def _run(self) -> None:
        while batch := self._waiting[:BATCH_MOST]:
            del self._waiting[:BATCH_MOST]
            items = [{**item, "item": place} for place, (item, _) in enumerate(batch)]
            try:
                rows = await self._desk.journal.rows(
                    INTAKE, self._desk.epoch, orjson.dumps(items).decode()
                )
            except Exception as failure:  # noqa: BLE001 - each of those who wait is told
                for _, future in batch:
                    if not future.done():
                        future.set_exception(failure)
                continue
            for row in rows:
                future = batch[row["item"]][1]
                if not future.done():
                    future.set_result(row)


def item_of(arrival: Arrival, temporary: str) -> dict[str, Any]:
    """Describe an arrival to the journal."""
    return {
        "item": 0,
        "database": arrival.database,
        "sender": arrival.sender,
        "id": arrival.id,
        "recipient": arrival.recipient,
        "order_number": arrival.order,
        "size": arrival.content.size,
        "sha256": arrival.content.sha256,
        "digest": arrival.digest,
        "media_type": arrival.content.media_type,
        "is_group": arrival.content.is_group,
        "temporary": temporary,
    }


def _refuse(answer: str, arrival: Arrival) -> None:
    if answer == "other":
        raise MessageConflict(
            f"{arrival.sender} has used the id {arrival.id} for other content",
            hint="give each message an id of its own; repeat a message unchanged",
        )
    if answer == "case":
        raise IdByCase(
            f"an id of {arrival.sender} differs from {arrival.id} only by case",
            hint="use the exact id, or one that differs by more",
        )


def _with(move: Move, temporary: str) -> Move:
    return Move(
        move.number,
        move.database,
        move.name,
        move.folder,
        None,
        temporary,
        move.size,
        move.sha256,
        move.media_type,
        None,
        move.state,
    )
