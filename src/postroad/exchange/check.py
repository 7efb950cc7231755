"""Compares rows and folders, and repairs the folders.

| finding | what it is | repair |
|---|---|---|
| moved | a file is in another folder than its row | moved to the row's folder |
| missing | no file | an alert; the message is parked unless it was processed |
| changed | another size or digest than the stored one | the same, and the file goes to Error |
| unlisted | a file without a row | moved to Error as `unlisted-…`, an object to `unlisted/` |
| temporary | left by a crash | removed |
| unsafe | a link, a pipe, a folder among the files | reported, never touched |
| unreadable | the disk or the store reports an error | reported, never touched |

Blocking. It may run while the exchange is served: a difference is reported only if a second read
confirms it. A folder that is not the journal's root is refused, because every file would be missing
there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from psycopg import Connection
from psycopg.rows import dict_row

from postroad.exchange import status
from postroad.exchange.errors import ExchangeError, FileUnsafe, RootForeign, storage_failure
from postroad.exchange.files import FOLDERS, TEMPORARY_PREFIX, Storage
from postroad.exchange.journal import DATABASES
from postroad.exchange.moves import Move, redo
from postroad.postgres.calls import invocation

Kind = Literal["moved", "missing", "changed", "unlisted", "temporary", "unsafe", "unreadable"]

# Objects that no row refers to and that no running server has stored.
UNLISTED = (
    "select u.name from unnest(%s::text[], %s::timestamptz[]) u (name, stored_at)"
    " where not exists (select from exchange.message m where m.object = u.name)"
    " and not exists (select from exchange.member m"
    " where starts_with(u.name, 'object-' || m.epoch || '.')"
    # A restored journal may give a generation a second time. The clocks may differ slightly.
    " and u.stored_at > m.started_at - interval '1 min')"
)
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between rows and folders."""

    kind: Kind
    database: str
    folder: str
    name: str
    detail: str
    is_fixed: bool = False


def check(
    connection: Connection[Any],
    storage: Storage,
    *,
    is_fixing: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Finding]:
    """Return every difference; with `is_fixing` repair it.

    Sets the connection to autocommit. Raises RootForeign or StorageFailed, before anything is
    changed.
    """
    connection.rollback()
    connection.autocommit = True
    try:
        _refuse_foreign(connection, storage)
    except OSError as failure:
        raise storage_failure(failure, "the root cannot be read") from failure
    findings: list[Finding] = []
    known = [row[0] for row in connection.execute(DATABASES).fetchall()]
    for database in known:
        if is_fixing:
            storage.make_database(database)
        for finding, repair in _found(connection, storage, database, progress):
            is_fixed = is_fixing and finding.kind != "unreadable" and repair(finding)
            findings.append(replace(finding, is_fixed=is_fixed))
    try:
        findings += [
            Finding("unlisted", name, "", name, "no database of this name is known")
            for name in storage.databases()
            if name not in known
        ]
    except OSError as failure:
        findings.append(_unreadable(failure, "", "", storage.address))
    return findings


def _call(connection: Connection[Any], function: str, *given: Any) -> list[Any]:
    text = f"select exchange.{invocation(function, len(given))}"
    return [row[0] for row in connection.execute(text.encode(), given).fetchall()]


def _refuse_foreign(connection: Connection[Any], storage: Storage) -> None:
    with connection.cursor(row_factory=dict_row) as cursor:
        server = cursor.execute(status.SERVER).fetchone() or {}
    known, path = server["root_id"], server["root_path"]
    hint = f"set --root to the folder that the server uses: {path}" if path else None
    second = server["second_root_id"] if server["is_migrating"] else known
    for store in storage.stores if known is not None else ():
        if store.root_name() not in (known, second):
            raise RootForeign(f"{store.address} is not the root of this journal", hint=hint)
    if server["is_serving"] and not storage.is_in_use():
        raise RootForeign(
            f"the server {server['holder']} does not serve from {storage.address}", hint=hint
        )


def _found(
    connection: Connection[Any], storage: Storage, database: str, progress: Callable[[int], None]
) -> Iterator[tuple[Finding, Callable[[Finding], bool]]]:
    """Yield the differences of a database, each with its repair."""
    expected: set[tuple[str, str]] = set()
    temporaries: set[str] = set()
    for move, difference in _compared(connection, storage, database):
        progress(1)
        if move.temporary:
            temporaries.add(move.temporary)
        for folder in {move.folder, move.source} - {None}:
            expected |= {(str(folder), name) for name in (move.name, move.head) if name}
        if difference is None or not _is_still_so(connection, move):
            continue
        # Its move may have ended between the two reads.
        if found := _compare(storage, move):
            if found.kind == "moved":
                expected.add((found.folder, move.name))
            yield found, partial(_fix, connection, storage, move)
    put_aside = partial(_put_aside, storage)
    # With an object store, folders exist only in the rows.
    for folder in FOLDERS if storage.has_folders else ():
        for name in storage.names(database, folder):
            if (folder, name) not in expected and name not in temporaries:
                found = _unlisted(storage, database, folder, name)
                if found is not None and not _is_listed_now(connection, database, name):
                    yield found, put_aside
    try:
        for page in storage.objects.pages(database) if storage.objects else ():
            rows = connection.execute(
                UNLISTED, ([name for name, _ in page], [at for _, at in page])
            ).fetchall()
            for (name,) in rows:
                yield Finding("unlisted", database, "", name, "no row has this object"), put_aside
    except OSError as failure:
        yield _unreadable(failure, database, "", storage.address), put_aside


def filed(connection: Connection[Any], database: str) -> Iterator[list[Move]]:
    """Yield every file that belongs in the folders of a database, in pages."""
    after = 0
    while True:
        moves = [Move.of(one) for one in _call(connection, "filed", database, after, PAGE)]
        yield moves
        if len(moves) < PAGE:
            return
        after = moves[-1].number


def _compared(
    connection: Connection[Any], storage: Storage, database: str
) -> Iterator[tuple[Move, Finding | None]]:
    with ThreadPoolExecutor(storage.readers) as threads:
        for moves in filed(connection, database):
            yield from zip(moves, threads.map(partial(_compare, storage), moves), strict=True)


def _unreadable(failure: OSError, database: str, folder: str, name: str) -> Finding:
    return Finding("unreadable", database, folder, name, failure.strerror or str(failure))


def _compare(storage: Storage, move: Move) -> Finding | None:
    """Compare one row with its file."""
    database, folder, name = move.database, move.folder, move.name
    if folder is None:
        return None
    try:
        try:
            size, digest = storage.digest(database, folder, move.stored_name)
        except FileNotFoundError:
            for other in () if move.object else FOLDERS:
                if other != folder and storage.exists(database, other, name):
                    return Finding("moved", database, other, name, f"belongs into {folder}")
            if move.temporary and storage.exists(database, folder, move.temporary):
                return Finding("moved", database, folder, move.temporary, "was not renamed yet")
            return Finding("missing", database, folder, name, "there is no such file")
    except FileUnsafe as unsafe:
        return Finding("changed", database, folder, name, str(unsafe))
    except OSError as failure:
        return _unreadable(failure, database, folder, name)
    if (size, digest) != (move.size, move.sha256):
        what = f"{size} bytes instead of {move.size}" if size != move.size else "other content"
        return Finding("changed", database, folder, name, what)
    return None


def _is_still_so(connection: Connection[Any], move: Move) -> bool:
    """Return whether the row is unchanged; otherwise the server was moving the file."""
    row = connection.execute(
        "select m.folder, m.state, m.object from exchange.message m where m.number = %s",
        (move.number,),
    ).fetchone()
    return row == (move.folder, move.state, move.object) and move.folder != "Error"


def _is_listed_now(connection: Connection[Any], database: str, name: str) -> bool:
    row = connection.execute(
        "select exists (select from exchange.message m where m.database_id = %s"
        " and (m.file_name = %s or m.file_name = %s)"
        # A file that an administrator has put back but not requeued has a row, too.
        " and (m.folder is not null or m.state = 'parked'))"
        " or exists (select from exchange.move v where v.temporary = %s)"
        # A running server is writing it.
        " or exists (select from exchange.member m where starts_with(%s, %s || m.epoch || '.'))",
        (database, name, name.removesuffix(".json") + ".bin", name, name, TEMPORARY_PREFIX),
    ).fetchone()
    return bool(row and row[0])


def _fix(connection: Connection[Any], storage: Storage, move: Move, finding: Finding) -> bool:
    plan: Move | None = move
    if finding.kind != "moved":
        is_there = finding.kind == "changed"
        given = move.version, f"found by check: {finding.detail}", is_there, move.folder
        _call(connection, "quarantine", None, move.number, *given)
        found = _call(connection, "pending", None, [move.number], 0, 1) if is_there else ()
        plan = Move.of(found[0]) if found else None
    if plan is not None:
        if redo(storage, plan.database, [plan])[0] is not None:
            return False
        processes = [plan.process] if plan.process else []
        _call(connection, "placed", None, [plan.number], [plan.version], processes)
    return True


def _unlisted(storage: Storage, database: str, folder: str, name: str) -> Finding | None:
    with storage.folder(database, folder) as parent:
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(mode):
        return Finding("unsafe", database, folder, name, "not a plain file; remove it by hand")
    if name.startswith(TEMPORARY_PREFIX):
        return Finding("temporary", database, folder, name, "left by a crash")
    if folder == "Error" and name.startswith("unlisted-"):
        return None
    return Finding("unlisted", database, folder, name, "no row has this file")


def _put_aside(storage: Storage, finding: Finding) -> bool:
    if finding.kind == "unsafe":
        return False
    where = finding.database, finding.folder, finding.name
    with contextlib.suppress(OSError, ExchangeError):
        (storage.unlink if finding.kind == "temporary" else storage.put_aside)(*where)
        if finding.folder:
            storage.synchronise(finding.database, finding.folder)
        return True
    return False
