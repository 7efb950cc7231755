"""The redo of the recorded plan: brings files to where the journal says they belong.

The same function runs in normal work and in recovery. A move that was done is found done: its
source is missing and its target is there. What is asked for at the same time in one database is
done in one go, so that its folders are synchronised once for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from postroad.exchange.errors import (
    ExchangeError,
    FileMissing,
    FileUnsafe,
    StorageFailed,
    storage_failure,
)
from postroad.exchange.files import FOLDERS, Session, Storage

__all__ = ["Move", "Placement", "redo"]


@dataclass(frozen=True, slots=True)
class Move:
    """One file: where it belongs (None: nowhere), where it was last known to lie, what it is."""

    number: int
    database: str
    name: str
    folder: str | None
    source: str | None = None
    temporary: str | None = None
    size: int = 0
    sha256: str = ""
    media_type: str | None = None
    process: str | None = None
    state: str = ""
    version: int = 0

    @classmethod
    def of(cls, fact: dict[str, Any]) -> Move:
        """Read what the journal returns."""
        return cls(
            number=fact["number"],
            database=fact["database"],
            name=fact["name"],
            folder=fact["folder"],
            source=fact.get("source"),
            temporary=fact.get("temporary"),
            size=fact["size"],
            sha256=fact["sha256"],
            media_type=fact["media_type"],
            process=fact.get("process"),
            state=fact.get("state", ""),
            version=fact.get("version") or 0,
        )

    @property
    def head(self) -> str | None:
        """The name of the small JSON head that lies beside a file that is not JSON itself."""
        return self.name.removesuffix(".bin") + ".json" if self.media_type is not None else None


REMEMBERED_MOST = 100_000

_Job = tuple[list[Move], asyncio.Future[list[ExchangeError | None]]]


class Placement:
    """Does moves in threads, batch by batch and database by database."""

    def __init__(self, storage: Storage, threads: Executor) -> None:
        self._storage = storage
        self._threads = threads
        self._waiting: dict[str, list[_Job]] = defaultdict(list)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._followed: OrderedDict[int, int] = OrderedDict()

    async def place(self, moves: Sequence[Move]) -> None:
        """Do the moves and make them durable. Raises FileMissing, StorageFailed, StorageFull.

        All are tried; the first failure is raised when all have ended.
        """
        for failure in await self.outcomes(moves):
            if failure is not None:
                raise failure

    async def outcomes(self, moves: Sequence[Move]) -> list[ExchangeError | None]:
        """Do the moves and make them durable; return for each what went wrong, or None."""
        jobs: dict[str, list[int]] = {}
        for index, move in enumerate(moves):
            jobs.setdefault(move.database, []).append(index)
        found: list[ExchangeError | None] = [None] * len(moves)
        loop = asyncio.get_running_loop()
        futures = []
        for database, indexes in jobs.items():
            future: asyncio.Future[list[ExchangeError | None]] = loop.create_future()
            self._waiting[database].append(([moves[index] for index in indexes], future))
            futures.append((indexes, future))
            if database not in self._running:
                self._running[database] = loop.create_task(self._run(database))
        for indexes, future in futures:
            for index, outcome in zip(indexes, await future, strict=True):
                found[index] = outcome
        return found

    async def close(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, database: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while jobs := self._waiting.pop(database, None):
                moves = [move for some, _ in jobs for move in some]
                current = [move for move in moves if self._is_current(move)]
                try:
                    done = await loop.run_in_executor(
                        self._threads, redo, self._storage, database, current
                    )
                    found = dict(zip((id(move) for move in current), done, strict=True))
                    outcomes = [found.get(id(move)) for move in moves]
                except Exception as failure:  # noqa: BLE001 - told to all who wait
                    for _, future in jobs:
                        if not future.done():
                            future.set_exception(failure)
                    continue
                begin = 0
                for some, future in jobs:
                    if not future.done():
                        future.set_result(outcomes[begin : begin + len(some)])
                    begin += len(some)
        finally:
            del self._running[database]

    def _is_current(self, move: Move) -> bool:
        """Whether no newer plan of the file was followed: an older one would take it back."""
        if move.version < self._followed.get(move.number, 0):
            return False
        self._followed[move.number] = move.version
        self._followed.move_to_end(move.number)
        while len(self._followed) > REMEMBERED_MOST:
            self._followed.popitem(last=False)
        return True


def redo(storage: Storage, database: str, moves: Sequence[Move]) -> list[ExchangeError | None]:
    """Do moves of one database; return for each what went wrong, or None. Blocks."""
    with Session(storage.root) as session:
        return _redo_all(session, database, moves)


def _redo_all(storage: Storage, database: str, moves: Sequence[Move]) -> list[ExchangeError | None]:
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
    is_taken = storage.exists(move.database, move.folder, move.name)
    for folder, name in _sources(move):
        if is_taken and storage.exists(move.database, folder, name):
            _make_way(storage, move, move.folder)
        with contextlib.suppress(FileNotFoundError):
            storage.rename(move.database, (folder, name), (move.folder, move.name))
            _move_head(storage, move, folder)
            return {folder, move.folder}
    if storage.exists(move.database, move.folder, move.name):
        _move_head(storage, move, move.source)
        # Somebody renamed it and may have died before the folders were synchronised.
        return {move.folder} | ({move.source} if move.source else set())
    raise FileMissing(
        f"{move.name} is neither where it was nor in {move.folder}", number=move.number
    )


def _make_way(storage: Storage, move: Move, folder: str) -> None:
    """Put aside what lies under the name already, unless it is a copy of the same content.

    Nobody else's file has this name, so it is a stranger's, or a copy between two file systems died
    before it removed its source.
    """
    with contextlib.suppress(FileUnsafe, OSError):
        if storage.digest(move.database, folder, move.name) == (move.size, move.sha256):
            return
    aside = f"unlisted-{secrets.token_hex(4)}-{move.name}"
    storage.rename(move.database, (folder, move.name), ("Error", aside))
    storage.synchronise(move.database, "Error")


def _sources(move: Move) -> Iterator[tuple[str, str]]:
    """Where to look, the likeliest first: its temporary name, the known place, anywhere else."""
    if move.temporary is not None:
        yield move.source or move.folder or "Messages", move.temporary
        yield "Prepared", move.temporary
        yield "Messages", move.temporary
    if move.source is not None and move.source != move.folder:
        yield move.source, move.name
    if move.source is not None or move.temporary is None:
        for folder in FOLDERS:
            if folder not in (move.folder, move.source):
                yield folder, move.name


def _remove(storage: Storage, move: Move) -> set[str]:
    folders = [move.source or "Prepared", *(["Prepared"] if move.temporary else [])]
    for folder in dict.fromkeys(folders):
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
