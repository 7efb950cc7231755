"""The redo of the recorded plan: brings files to the folders that the journal names.

The same function runs in normal work and in recovery, and is idempotent: a move that was done is
recognised by its missing source and its existing target.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from postroad.exchange.errors import (
    ExchangeError,
    FileMissing,
    FileUnsafe,
    StorageFailed,
    storage_failure,
)
from postroad.exchange.files import FOLDERS, OBJECT_PREFIX, Storage


@dataclass(frozen=True, slots=True)
class Move:
    """One file: the folder it belongs in (None: remove it), its last known folder, its facts."""

    number: int
    database: str
    name: str
    folder: str | None = None
    source: str | None = None
    temporary: str | None = None
    size: int = 0
    sha256: str = ""
    media_type: str | None = None
    process: str | None = None
    state: str = ""
    version: int = 0
    object: str | None = None
    # The process is being started, so no client has read the file.
    is_new: bool = False

    @classmethod
    def of(cls, fact: dict[str, Any]) -> Move:
        """Read a row or a JSON object of the journal."""
        return cls(**{name: fact[name] for name in cls.__slots__ if fact.get(name) is not None})

    @classmethod
    def planned(cls, answer: dict[str, Any]) -> list[Move]:
        """Read the moves in an answer of the journal."""
        return [cls.of(fact) for fact in answer.get("moves", ())]

    @property
    def stored_name(self) -> str:
        """The name of its content in the store: that of its object or that of its file."""
        return self.object or self.name

    @property
    def head(self) -> str | None:
        """The name of the small JSON file beside a file that is not JSON itself."""
        return self.name.removesuffix(".bin") + ".json" if self.media_type is not None else None


def redo(storage: Storage, database: str, moves: Sequence[Move]) -> list[ExchangeError | None]:
    """Perform moves of one database; return the failure of each, or None. Blocks."""
    outcomes: list[ExchangeError | None] = []
    touched: list[set[str]] = []
    with storage.session() as session:
        for move in moves:
            touched.append(set())
            outcomes.append(None)
            try:
                touched[-1] = _redo_one(session, move)
            except ExchangeError as failure:
                outcomes[-1] = failure
            except OSError as failure:
                outcomes[-1] = storage_failure(failure, f"cannot move {move.name}")
        for folder in sorted(set().union(*touched)):
            try:
                session.synchronise(database, folder)
            except (OSError, ExchangeError) as failure:
                for index, folders in enumerate(touched):
                    if folder in folders and outcomes[index] is None:
                        outcomes[index] = StorageFailed(f"cannot synchronise {folder}: {failure}")
    return outcomes


def _redo_one(storage: Storage, move: Move) -> set[str]:
    """Perform one move and return the folders whose names changed."""
    is_object = move.object or (move.temporary or "").startswith(OBJECT_PREFIX)
    if storage.objects and (is_object or not storage.has_folders):
        return _redo_object(storage, move)
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
        # Its rename may have been done by a server that died before it synchronised the folders.
        return {move.folder} | ({move.source} if move.source else set())
    raise FileMissing(
        f"{move.name} is neither where it was nor in {move.folder}", number=move.number
    )


def _redo_object(storage: Storage, move: Move) -> set[str]:
    """Remove an object, or find it; the row alone names its folder.

    An object that still has its temporary name has just been stored, before its row was written.
    """
    if move.folder is None:
        storage.unlink(move.database, "", move.stored_name)
    elif not move.temporary and not storage.exists(move.database, "", move.stored_name):
        raise FileMissing(f"{move.name} is missing in the store", number=move.number)
    if move.temporary or not storage.has_folders or not storage.stores[0].objects:
        return set()
    # A migration has copied it from a folder, and no server copies files to folders meanwhile.
    places = [one for one in FOLDERS if storage.exists(move.database, one, move.name)]
    for folder in places:
        storage.unlink(move.database, folder, move.name)
        storage.unlink(move.database, folder, move.head or move.name)
    return {*places}


def _make_way(storage: Storage, move: Move, folder: str) -> None:
    """Put an unlisted file of this name into Error, unless it has the same content.

    A file with the same content was copied between two file systems by a server that died before it
    removed the source.
    """
    with contextlib.suppress(FileUnsafe, OSError):
        if storage.digest(move.database, folder, move.name) == (move.size, move.sha256):
            return
    storage.put_aside(move.database, folder, move.name)


def _sources(move: Move) -> Iterator[tuple[str, str]]:
    """Return the places where the file may be: temporary name, known folder, any other folder."""
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
    folders = {move.source or "Prepared", *(["Prepared"] if move.temporary else [])}
    if move.state == "done":
        # A server that was suspended may have moved it to another folder.
        folders |= {one for one in FOLDERS if storage.exists(move.database, one, move.name)}
    for folder in folders:
        if move.temporary:
            storage.unlink(move.database, folder, move.temporary)
        storage.unlink(move.database, folder, move.name)
        if move.head:
            storage.unlink(move.database, folder, move.head)
    return folders


def _move_head(storage: Storage, move: Move, source: str | None) -> None:
    """Move the head with its file; a missing head is written again from the journal."""
    if move.head is None or move.folder is None:
        return
    if source is not None and source != move.folder:
        with contextlib.suppress(FileNotFoundError):
            storage.rename(move.database, (source, move.head), (move.folder, move.head))
            return
    if not storage.exists(move.database, move.folder, move.head):
        head = {key: getattr(move, key) for key in ("media_type", "size", "sha256")}
        text = json.dumps({"file": move.name, **head}, indent=2) + "\n"
        temporary = storage.temporary_name()
        storage.write(move.database, move.folder, temporary, text.encode())
        storage.rename(move.database, (move.folder, temporary), (move.folder, move.head))
