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
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from postroad import trace
from postroad.exchange.content import Content
from postroad.exchange.desk import Desk
from postroad.exchange.errors import (
    ExchangeError,
    FileMissing,
    IdByCase,
    MessageConflict,
    StorageFailed,
    storage_failure,
    was_refused,
)
from postroad.exchange.files import temporary_name
from postroad.exchange.placement import Move

__all__ = ["Arrival", "Intake", "Taken"]

KNOWN_ID = "select exchange.known_id(p_database => %s, p_sender => %s, p_id => %s)"
INTAKE = "select * from exchange.intake(p_epoch => %s, p_items => %s::jsonb)"
BATCH_MOST = 64
# Two: while the files of one are written, the other is in the journal. More would only be smaller.
BATCHES_MOST = 2
# So long may one thread write before another one shares the work.
QUICK_SECONDS = 0.004


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that comes in."""

    sender: str
    database: str
    id: str
    recipient: str | None
    order: int | None
    content: Content
    traceparent: str | None = field(default_factory=trace.current)

    @property
    def digest(self) -> str:
        """What makes a second one the same."""
        content = self.content
        parts = (self.recipient, self.order, content.sha256, content.media_type, content.is_group)
        return "|".join(map(str, parts))


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to a sender: the same for the first time and for every repetition."""

    is_new: bool
    sequence: int
    name: str
    number: int


class Intake:
    """Takes messages in, many at once.

    What arrives while a batch is under way makes the next one: its files are written by a few
    threads, one journal call records them, one pass renames them.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: list[tuple[Arrival, asyncio.Future[Taken]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = 0
        self._write_seconds = 0.0

    async def take(self, arrival: Arrival) -> Taken:
        """Store a message durably. Raises MessageConflict, IdByCase, StorageFull, StorageFailed."""
        desk = self._desk
        if desk.is_full:
            desk.refuse_when_full()
        if arrival.database not in desk.databases:
            # A message that is refused must not leave a database behind that a typing error named.
            known = await desk.journal.call(KNOWN_ID, arrival.database, arrival.sender, arrival.id)
            if refusal := _refusal(known, arrival):
                raise refusal
            await desk.know_database(arrival.database)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Taken] = loop.create_future()
        self._waiting.append((arrival, future))
        if self._batches < BATCHES_MOST:
            self._batches += 1
            task = loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run(self) -> None:
        try:
            await self._take_batches()
        finally:
            # Here and not when the task is found done: what arrives in between would be left alone.
            self._batches -= 1

    async def _take_batches(self) -> None:
        while batch := self._waiting[:BATCH_MOST]:
            del self._waiting[:BATCH_MOST]
            by_database: dict[str, list[_Piece]] = {}
            for arrival, future in batch:
                piece = _Piece(arrival, temporary_name(), future)
                by_database.setdefault(arrival.database, []).append(piece)
            pieces = [piece for here in by_database.values() for piece in here]
            try:
                await self._write(by_database)
                written = [piece for piece in pieces if not piece.future.done()]
                await self._record(written)
                await asyncio.gather(*(self._place(here) for here in by_database.values()))
            except Exception as failure:  # noqa: BLE001 - raised in every request of the batch
                _fail(pieces, failure)
            finally:
                await self._drop(pieces)

    async def _write(self, by_database: dict[str, list[_Piece]]) -> None:
        """Write the temporary files: few threads while the disk is quick, many when it is slow."""
        desk = self._desk
        share = max(1, min(BATCH_MOST, int(QUICK_SECONDS / max(self._write_seconds, 1e-6))))
        await asyncio.gather(
            *(
                self._write_some(desk, database, pieces[begin : begin + share])
                for database, pieces in by_database.items()
                for begin in range(0, len(pieces), share)
            )
        )

    async def _write_some(self, desk: Desk, database: str, pieces: list[_Piece]) -> None:
        files = [(piece.temporary, piece.arrival.content.stored) for piece in pieces]
        begun = time.perf_counter()
        write = functools.partial(desk.in_thread, desk.storage.write_many, database, "Messages")
        try:
            try:
                failures = await write(files)
            except StorageFailed:
                # The folder may have been removed: created again, and tried once more.
                await desk.in_thread(desk.storage.make_database, database)
                failures = await write(files)
        except ExchangeError as failure:
            # Of this database only: the messages of the others go on.
            _fail(pieces, failure)
            return
        seconds = (time.perf_counter() - begun) / len(files)
        self._write_seconds += (seconds - self._write_seconds) / 8
        for piece, refused in zip(pieces, failures, strict=True):
            piece.is_written = refused is None
            if refused is not None:
                piece.fail(storage_failure(refused, "the message cannot be written"))

    async def _record(self, pieces: list[_Piece]) -> None:
        if not pieces:
            return
        items = [
            {**item_of(piece.arrival, piece.temporary), "item": place}
            for place, piece in enumerate(pieces)
        ]
        # Until the answer is there, the journal may name the files: they stay if it fails.
        for piece in pieces:
            piece.is_named = True
        desk = self._desk
        try:
            rows = await desk.journal.rows(INTAKE, desk.epoch, orjson.dumps(items).decode())
        except ExchangeError as failure:
            for piece in pieces:
                piece.is_named = not was_refused(failure)
            raise
        for row in rows:
            piece = pieces[row["item"]]
            piece.row = row
            piece.is_named = row["temporary"] == piece.temporary
            refusal = _refusal(row["answer"], piece.arrival)
            if refusal is not None:
                piece.is_named = False
                piece.fail(refusal)

    async def _place(self, pieces: list[_Piece]) -> None:
        try:
            await self._place_all(pieces)
        except Exception as failure:  # noqa: BLE001 - raised in every request for this database
            _fail(pieces, failure)

    async def _place_all(self, pieces: list[_Piece]) -> None:
        desk = self._desk
        placing = [p for p in pieces if not p.future.done() and p.row["is_pending"]]
        moves = [piece.move() for piece in placing]
        failed = await desk.placement.outcomes(moves)
        for piece, failure in zip(placing, failed, strict=True):
            again = failure
            if isinstance(failure, FileMissing) and not piece.is_named:
                # The first try lost its file before it was acknowledged; this one brings it again.
                piece.is_named = True
                again = (await desk.placement.outcomes([piece.move(piece.temporary)]))[0]
            if again is not None:
                piece.fail(again)
        desk.marks.place_later(
            [move for move, piece in zip(moves, placing, strict=True) if not piece.future.done()]
        )
        for piece in pieces:
            piece.succeed()

    async def _drop(self, pieces: list[_Piece]) -> None:
        desk = self._desk
        for piece in pieces:
            if piece.is_written and not piece.is_named:
                with contextlib.suppress(ExchangeError):
                    await desk.in_thread(
                        desk.storage.unlink, piece.arrival.database, "Messages", piece.temporary
                    )


@dataclass(slots=True)
class _Piece:
    """One arrival on its way through a batch."""

    arrival: Arrival
    temporary: str
    future: asyncio.Future[Taken]
    row: dict[str, Any] = field(default_factory=dict)
    is_written: bool = False
    is_named: bool = False

    def fail(self, failure: BaseException) -> None:
        """Raise a failure in the request, unless it has its answer."""
        if not self.future.done():
            self.future.set_exception(failure)

    def succeed(self) -> None:
        """Answer the request: its message is durable."""
        if not self.future.done():
            row = self.row
            is_new = row["answer"] == "new"
            self.future.set_result(Taken(is_new, row["sequence"], row["file_name"], row["number"]))

    def move(self, temporary: str | None = None) -> Move:
        """Return the move that gives the file its name."""
        content = self.arrival.content
        return Move(
            number=self.row["number"],
            database=self.arrival.database,
            name=self.row["file_name"],
            folder=self.row["folder"],
            temporary=temporary or self.row["temporary"],
            size=content.size,
            sha256=content.sha256,
            media_type=content.media_type,
            version=self.row["version"] or 0,
        )


def _fail(pieces: Sequence[_Piece], failure: BaseException) -> None:
    for piece in pieces:
        piece.fail(failure)


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
        "traceparent": arrival.traceparent,
    }


def _refusal(answer: str | None, arrival: Arrival) -> ExchangeError | None:
    if answer == "other":
        return MessageConflict(
            f"{arrival.sender} has used the id {arrival.id} for other content",
            hint="give each message an id of its own; repeat a message unchanged",
        )
    if answer == "case":
        return IdByCase(
            f"an id of {arrival.sender} differs from {arrival.id} only by case",
            hint="use the exact id, or one that differs by more",
        )
    return None
