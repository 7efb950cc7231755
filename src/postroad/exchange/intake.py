"""Intake: a message is durable before its sender gets an answer.

```
temporary file, synchronised -> row in the journal -> rename, folder synchronised -> 201
```

The message counts as accepted once its row exists. The row names the temporary file, so the redo
can finish the rest. A crash before it leaves a temporary file that no row refers to, which the next
start removes. Messages that arrive during a call of the journal share the next one.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from postroad import trace
from postroad.exchange import errors
from postroad.exchange.content import Content
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.postgres.calls import Row

HANDED_OUT = (
    "select m.number from exchange.message m"
    " where m.number = %s and m.state <> 'queued' and not m.is_parked_by_file"
)
# The fields of an arrival, and of its content, that are passed to the journal.
ARRIVAL = "database", "sender", "id", "recipient", "order_number", "digest", "traceparent"
CONTENT = "size", "sha256", "media_type", "is_group"
MAX_BATCH = 64
MAX_BATCHES = 2
# The time that one thread may write before another one shares the work.
QUICK_SECONDS = 0.004


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message to store."""

    sender: str
    database: str
    id: str
    recipient: str | None
    order_number: int | None
    content: Content
    traceparent: str | None = field(default_factory=trace.current)

    @property
    def digest(self) -> str:
        """Equal for two messages with the same content and address."""
        content = self.content
        parts = (content.sha256, content.media_type, content.is_group)
        return "|".join(map(str, (self.recipient, self.order_number, *parts)))


class Intake:
    """Stores messages in batches: those that arrive during a batch form the next one."""

    def __init__(self, mover: Mover) -> None:
        self._journal = mover.journal
        self._mover = mover
        self._waiting: list[tuple[Arrival, asyncio.Future[Row]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = 0
        self._write_seconds = 0.0

    async def take(self, arrival: Arrival) -> Row:
        """Store a message durably; return the answer of the journal.

        Raises MessageConflict, IdByCase, StorageFull, StorageFailed.
        """
        self._mover.storage.refuse_when_full()
        if arrival.database not in self._mover.opened:
            # A refused message must not create a database that a typing error named.
            named = arrival.database, arrival.sender, arrival.id
            if refusal := _refusal(await self._journal.call("known_id", *named), arrival):
                raise refusal
            await self._mover.open(arrival.database)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Row] = loop.create_future()
        self._waiting.append((arrival, future))
        if self._batches < MAX_BATCHES:
            self._batches += 1
            task = loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run(self) -> None:
        try:
            while batch := self._waiting[:MAX_BATCH]:
                del self._waiting[:MAX_BATCH]
                by_database: dict[str, list[_Piece]] = {}
                for arrival, future in batch:
                    piece = _Piece(arrival, self._mover.storage.temporary_name(), future)
                    by_database.setdefault(arrival.database, []).append(piece)
                await self._take_batch(by_database)
        finally:
            self._batches -= 1

    async def _take_batch(self, by_database: dict[str, list[_Piece]]) -> None:
        pieces = [piece for here in by_database.values() for piece in here]
        try:
            await self._write(by_database)
            await self._record([piece for piece in pieces if not piece.future.done()])
            await asyncio.gather(*(self._place(here) for here in by_database.values()))
        except Exception as failure:  # noqa: BLE001 - raised in every request of the batch
            _fail(pieces, failure)
        finally:
            for database, here in by_database.items():
                unused = [one.temporary for one in here if one.is_written and not one.is_named]
                await self._mover.drop(database, "Messages", unused)

    async def _write(self, by_database: dict[str, list[_Piece]]) -> None:
        """Write the temporary files: few threads while the disk is quick, many when it is slow."""
        most = min(MAX_BATCH, self._mover.storage.max_write_share)
        share = max(1, min(most, int(QUICK_SECONDS / max(self._write_seconds, 1e-6))))
        await asyncio.gather(
            *(
                self._write_some(database, pieces[begin : begin + share])
                for database, pieces in by_database.items()
                for begin in range(0, len(pieces), share)
            )
        )

    async def _write_some(self, database: str, pieces: list[_Piece]) -> None:
        mover, storage = self._mover, self._mover.storage
        files = [(piece.temporary, piece.arrival.content.stored) for piece in pieces]
        begun = time.perf_counter()
        write = functools.partial(mover.in_thread, storage.write_many, database, "Messages")
        try:
            try:
                failures = await write(files)
            except errors.StorageFailed:
                # The folder may have been removed: it is created again.
                await mover.in_thread(storage.make_database, database)
                failures = await write(files)
        except errors.ExchangeError as failure:
            # Only the messages of this database fail; those of the others continue.
            _fail(pieces, failure)
            return
        seconds = (time.perf_counter() - begun) / len(files)
        self._write_seconds += (seconds - self._write_seconds) / 8
        for piece, refused in zip(pieces, failures, strict=True):
            piece.is_written = refused is None
            if refused is not None:
                piece.fail(errors.storage_failure(refused, "the message cannot be written"))

    async def _record(self, pieces: list[_Piece]) -> None:
        if not pieces:
            return
        for place, piece in enumerate(pieces):
            piece.item = item_of(piece.arrival, piece.temporary, place)
            # Until the answer arrives, the journal may name the files: they stay if the call fails.
            piece.is_named = True
        try:
            given = orjson.dumps([piece.item for piece in pieces]).decode()
            rows = await self._journal.select("intake", self._journal.epoch, given)
        except errors.ExchangeError as failure:
            for piece in pieces:
                piece.is_named = not errors.was_refused(failure)
            raise
        for row in rows:
            piece = pieces[row["item"]]
            piece.row = row
            refusal = _refusal(row["answer"], piece.arrival)
            piece.is_named = refusal is None and row["temporary"] == piece.temporary
            if refusal is not None:
                piece.fail(refusal)

    async def _place(self, pieces: list[_Piece]) -> None:
        try:
            placing = [one for one in pieces if not one.future.done() and one.row["is_pending"]]
            moves = [piece.move() for piece in placing]
            for piece, failure in zip(placing, await self._mover.outcomes(moves), strict=True):
                again = failure
                if isinstance(failure, errors.FileMissing) and not piece.is_named:
                    piece.is_named = True
                    again = (await self._mover.outcomes([piece.move(piece.temporary)]))[0]
                # It may be missing because another server has handed out its message.
                if again is not None and not (
                    isinstance(again, errors.FileMissing)
                    and await self._journal.rows(HANDED_OUT, piece.row["number"])
                ):
                    piece.fail(again)
            done = zip(moves, placing, strict=True)
            self._mover.record_later([move for move, piece in done if not piece.future.done()])
            for piece in pieces:
                if not piece.future.done():
                    piece.future.set_result(piece.row)
        except Exception as failure:  # noqa: BLE001 - raised in every request for this database
            _fail(pieces, failure)


@dataclass(slots=True)
class _Piece:
    """One arrival in a batch."""

    arrival: Arrival
    temporary: str
    future: asyncio.Future[Row]
    # The values passed to the journal, and its answer.
    item: Row = field(default_factory=dict)
    row: Row = field(default_factory=dict)
    is_written: bool = False
    is_named: bool = False

    def fail(self, failure: BaseException) -> None:
        """Raise a failure in the request, unless it was answered."""
        if not self.future.done():
            self.future.set_exception(failure)

    def move(self, temporary: str | None = None) -> Move:
        """Return the move that gives the file its name."""
        names = {"name": self.row["file_name"], "temporary": temporary or self.row["temporary"]}
        return Move.of({**self.item, **self.row, **names})


def _fail(pieces: Sequence[_Piece], failure: BaseException) -> None:
    for piece in pieces:
        piece.fail(failure)


def item_of(arrival: Arrival, temporary: str, item: int = 0) -> Row:
    """Describe an arrival to the journal."""
    own = {name: getattr(arrival, name) for name in ARRIVAL}
    content = {name: getattr(arrival.content, name) for name in CONTENT}
    return {"item": item, "temporary": temporary, **own, **content}


def _refusal(answer: str | None, arrival: Arrival) -> errors.ExchangeError | None:
    if answer == "other":
        return errors.MessageConflict(
            f"{arrival.sender} has used the id {arrival.id} for other content",
            hint="use a new id for each message; repeat a message unchanged",
        )
    if answer == "case":
        return errors.IdByCase(
            f"an id of {arrival.sender} differs from {arrival.id} only by case",
            hint="use the exact id, or one that differs by more",
        )
    return None
