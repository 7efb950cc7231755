"""Renders the folders of a database from its rows and its stored content, whatever the store is.

The result has the layout of a root folder. A repeated or interrupted export moves files whose
messages have moved in the meantime, and writes only missing and changed ones. Other files in the
folder, and files whose messages were removed, stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from psycopg import Connection

from postroad.exchange.check import filed
from postroad.exchange.errors import DatabaseNotFound, ExchangeError, FileCorrupt, RootForeign
from postroad.exchange.files import FOLDERS, TEMPORARY_PREFIX, Storage
from postroad.exchange.journal import DATABASES
from postroad.exchange.moves import Move, redo


def export(
    connection: Connection[Any],
    storage: Storage,
    database: str,
    folder: Path,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[int, list[tuple[Move, Exception]]]:
    """Write the files of a database to `folder`.

    Returns how many files are there, and those that could not be written, with the reason.

    Sets the connection to autocommit. Raises DatabaseNotFound, RootForeign.
    """
    connection.rollback()
    connection.autocommit = True
    if (database,) not in connection.execute(DATABASES).fetchall():
        raise DatabaseNotFound(f"there is no database {database}")
    folder.mkdir(parents=True, exist_ok=True)
    target = Storage(folder)
    if target.root_name() is not None:
        raise RootForeign(f"{folder} is the root of an exchange", hint="export to another folder")
    target.make_database(database)
    for place in FOLDERS:
        for name in target.names(database, place):
            if name.startswith(TEMPORARY_PREFIX):
                # Left by an export that was interrupted.
                target.unlink(database, place, name)
    count, failures = 0, list[tuple[Move, Exception]]()
    with ThreadPoolExecutor(storage.readers) as threads:
        for page in filed(connection, database):
            moves = [move for move in page if move.folder is not None]
            # Files that were exported before may be in another folder: they are moved first.
            redo(target, database, [_plain(move) for move in moves])
            read = threads.map(partial(_write, storage, target), moves)
            written = list(zip(moves, read, strict=True))
            failures += [(move, one) for move, one in written if isinstance(one, Exception)]
            named = [_plain(move, one) for move, one in written if isinstance(one, str)]
            placed = zip(named, redo(target, database, named), strict=True)
            failures += [(move, failure) for move, failure in placed if failure is not None]
            count += len(moves)
            progress(len(page))
    return count - len(failures), failures


def _plain(move: Move, temporary: str | None = None) -> Move:
    return replace(move, object=None, source=None, temporary=temporary)


def _write(storage: Storage, target: Storage, move: Move) -> str | Exception | None:
    """Write a file under a temporary name and return it; None if the file already exists."""
    where = move.database, move.folder or "Messages"
    try:
        with contextlib.suppress(FileNotFoundError):
            if target.digest(*where, move.name) == (move.size, move.sha256):
                return None
        temporary = target.temporary_name()
        storage.copy((*where, move.stored_name), target, (*where, temporary))
        if target.digest(*where, temporary) != (move.size, move.sha256):
            target.unlink(*where, temporary)
            raise FileCorrupt(f"{move.name}: the content has changed")
    except (OSError, ExchangeError) as failure:
        return failure
    return temporary
