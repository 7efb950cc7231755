"""The redo of the recorded plan: brings files to where the journal says they belong.

The same function runs in normal work and in recovery. A move that was done is found done: its
source is missing and its target is there. What is asked for at the same time in one database is
done in one go, so that its folders are synchronised once for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from postroad.exchange.errors import ExchangeError, FileMissing, StorageFailed, storage_failure
from postroad.exchange.files import FOLDERS, Storage

__all__ = ["Move", "Placement", "redo"]

BATCH_MOST = 500


@dataclass(frozen=True, slots=True)
class Move:
    """One file: where it belongs (None: nowhere), where it is known to lie, and what it is."""

    number: int
    database: str
    name: str
    folder: str | None
    placed: str | None
    temporary: str | None
    size: int = 0
    sha256: str = ""
    media_type: str | None = None
    process: str | None = None
    state: str = ""

    @classmethod
    def of(cls, fact: dict[str, Any]) -> Move:
        """Read what the journal returns."""
        return cls(**{name: fact.get(name) for name in cls.__slots__})

    @property
    def head(self) -> str | None:
        """The name of the small JSON head that lies beside a file that is not JSON itself."""
        return self.name.removesuffix(".bin") + ".json" if self.media_type is not None else None


class Placement:
    """Does moves in threads, batch by batch and database by database."""

    def __init__(self, storage: Storage, threads: Executor) -> None:
        self._storage = storage
        self._threads = threads
        self._waiting: dict[str, list[tuple[Move, asyncio.Future[None]]]] = defaultdict(list)
        self._running: dict[str, asyncio.Task[None]] = {}

    async def place(self, moves: Sequence[Move]) -> None:
        """Do the moves and make them durable. Raises FileMissing, StorageFailed, StorageFull.

        All are tried; the first failure is raised when all have ended.
        """
        if not moves:
            return
        loop = asyncio.get_running_loop()
        futures = []
        for move in moves:
            future: asyncio.Future[None] = loop.create_future()
            self._waiting[move.database].append((move, future))
            futures.append(future)
            if move.database not in self._running:
                task = loop.create_task(self._run(move.database))
                self._running[move.database] = task
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def close(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, database: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._waiting[database][:BATCH_MOST]:
                del self._waiting[database][:BATCH_MOST]
                outcomes = await loop.run_in_executor(
                    self._threads, redo, self._storage, database, [move for move, _ in batch]
                )
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():
                        continue
                    if outcome is None:
                        future.set_result(None)
                    else:
                        future.set_exception(outcome)
        finally:
            del self._running[database]


def redo(storage: Storage, database: str, moves: Sequence[Move]) -> list[ExchangeError | None]:
    """Do moves of one database; return for each what went wrong, or None. Blocks."""
    outcomes: list[ExchangeError | None] = []
    touched: list[set[str]] = []
    for move in moves:
        try:
            touched.append(_redo_one(storage, move))
            outcomes.append(None)
        except ExchangeError as failure:
            touched.append(set())
            outcomes.append(failure)
        except OSError as failure:
            touched.append(set())
            outcomes.append(storage_failure(failure, f"cannot move {move.name}"))
    for folder in sorted(set().union(*touched)):
        try:
            storage.synchronise(database, folder)
        except (OSError, ExchangeError) as failure:
            for index, folders in enumerate(touched):
                if folder in folders and outcomes[index] is None:
                    outcomes[index] = StorageFailed(f"cannot synchronise {folder}: {failure}")
    return outcomes


def _redo_one(storage: Storage, move: Move) -> set[str]:
    """Do one move and return the folders whose names changed."""
    if move.folder is None:
        return _remove(storage, move)
    for source in _sources(move):
        with contextlib.suppress(FileNotFoundError):
            storage.rename(move.database, source, (move.folder, move.name))
            _move_head(storage, move, source[0])
            return {source[0], move.folder}
    if storage.exists(move.database, move.folder, move.name):
        _move_head(storage, move, move.placed)
        # Somebody renamed it and may have died before the folder was synchronised.
        return {move.folder} | ({move.placed} if move.placed else set())
    raise FileMissing(
        f"{move.name} is neither where it was nor in {move.folder}", number=move.number
    )


def _sources(move: Move) -> list[tuple[str, str]]:
    """Where to look, the likeliest first: temporary name, known place, then everywhere else."""
    sources: list[tuple[str, str]] = []
    if move.placed is None and move.temporary is not None:
        sources.append(
            ("Prepared" if move.process and move.state != "queued" else "Messages", move.temporary)
        )
        sources.append(("Messages", move.temporary))
        sources.append(("Prepared", move.temporary))
    if move.placed is not None and move.placed != move.folder:
        sources.append((move.placed, move.name))
    sources += [
        (folder, move.name) for folder in FOLDERS if folder not in (move.folder, move.placed)
    ]
    return list(dict.fromkeys(sources))


def _remove(storage: Storage, move: Move) -> set[str]:
    folders = [move.placed] if move.placed else ["Prepared", "Messages", "Log", "Unknown"]
    for folder in folders:
        storage.unlink(move.database, folder, move.name)
        if move.temporary:
            storage.unlink(move.database, folder, move.temporary)
        if move.head:
            storage.unlink(move.database, folder, move.head)
    return set(folders)


def _move_head(storage: Storage, move: Move, source: str | None) -> None:
    """Bring the head along; it says nothing that the journal does not know, so it is rewritten."""
    if move.head is None or move.folder is None:
        return
    if source is not None and source != move.folder:
        with contextlib.suppress(FileNotFoundError):
            storage.rename(move.database, (source, move.head), (move.folder, move.head))
            return
    if not storage.exists(move.database, move.folder, move.head):
        head = {
            "file": move.name,
            "media_type": move.media_type,
            "size": move.size,
            "sha256": move.sha256,
        }
        with contextlib.suppress(FileExistsError):
            storage.write(
                move.database, move.folder, move.head, json.dumps(head, indent=2).encode() + b"\n"
            )
