"""The exchange's client in one file: the standard library only, Python 3.8 or newer. Copy it.

    exchange = Exchange("https://exchange.example.com", token="...")
    with exchange.process("db_a", connection) as work:
        for file in work.files:
            connection.execute("insert into orders ...", file.body)
            work.reply(file.sender, {"status": "taken"}, reply_to=file)

`connection` is a connection of psycopg (PostgreSQL), sqlite3 or firebird-driver without an open
transaction. What the block does with it is one transaction, which ends with the block:

    begin ── block ── prepare ──> marker, COMMIT ──> confirm ── acknowledge the marker
                │         │              │
                │         │              └─ COMMIT failed: ask the marker what became of it
                │         └─ CANCELLED or no answer: roll back, abort
                └─ the block raised, or its transaction failed or was rolled back in it: roll back,
                   tell it, raise

The block neither commits nor rolls back. An SQL error that it catches it undoes by a savepoint of
its own: without one the whole transaction is spoilt, and the block fails with TransactionEnded.
A block that commits all the same is noticed. What it has committed is not to be done twice: it is
confirmed if the block came to its end, else its files are put aside, for a person to look at; the
program is told by TransactionEnded in either case.

The marker is a row with the process's id in the ERP's own database (table `exchange_marker`),
written in the block's transaction. Whoever comes later, this instance or another, settles a
process whose outcome the exchange has not heard: it tries to insert the same key as ABORTED. If
that succeeds, the first transaction can never commit any more; if the key is there, it says what
happened; if it is there and cannot be seen, somebody is still at it. Nothing is ever guessed.

Every call may be repeated: it carries ids that are made once. Lost answers are asked for again
until `patience` runs out. Contents are compared with their sha256 on both sides.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import importlib
import itertools
import json
import logging
import random
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone
from typing import (
    Any,
    Callable,
    Generator,
    Iterable,
    Tuple,
)

__all__ = [
    "ChecksumMismatch",
    "ConnectionBusy",
    "ConnectionUnsupported",
    "DatabaseRestored",
    "Exchange",
    "ExchangeClientError",
    "File",
    "NotAnswered",
    "OutcomeUnknown",
    "ProcessCancelled",
    "Refused",
    "Reply",
    "Settled",
    "TransactionEnded",
    "Work",
]

logger = logging.getLogger("postroad.exchange.client")

TIMEOUT_SECONDS_DEFAULT = 30.0
PATIENCE_SECONDS_DEFAULT = 60.0
PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_LONGEST = 5.0
INLINE_BYTES_MOST = 256 * 1024
MARKERS_KEPT_DAYS = 30
CLEAN_UP_ONE_IN = 200
SETTLE_ROUNDS_MOST = 20

COMMITTED, ABORTED, INFLIGHT = "COMMITTED", "ABORTED", "INFLIGHT"
# What became of a block's transaction, besides: it is open, some of it was committed, or nobody
# knows.
OPEN, PARTLY, UNKNOWN = "OPEN", "PARTLY", "UNKNOWN"


class ExchangeClientError(Exception):
    """Something between this program, its database and the exchange."""


class NotAnswered(ExchangeClientError):
    """No answer that can be understood, for as long as there was patience. Try again later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(ExchangeClientError):
    """The exchange refuses the call; trying again will not help."""

    def __init__(self, message: str, status: int, problem: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class ProcessCancelled(ExchangeClientError):
    """The process ended while the block was at work; its transaction was rolled back."""


class OutcomeUnknown(ExchangeClientError):
    """The connection broke in COMMIT. The next process on this database settles it by itself."""


class Settled(ExchangeClientError):
    """The transaction was committed, and the exchange has settled the process otherwise."""


class TransactionEnded(ExchangeClientError):
    """The block's transaction failed inside the block, or was ended there.

    An SQL error that the block caught has spoilt the transaction unless it was undone by a
    savepoint. Nor may the block commit or roll back itself. What failed or was rolled back does not
    count; what the block has committed itself does, and is not handed out again.
    """


class DatabaseRestored(ExchangeClientError):
    """The database is older than what it has committed: it was restored from a backup."""

    def __init__(self, message: str, last: Any, got: Any) -> None:
        super().__init__(message)
        self.last = last
        self.got = got


class ChecksumMismatch(ExchangeClientError):
    """Content arrived that is not what was sent."""


class ConnectionBusy(ExchangeClientError):
    """The connection has an open transaction; commit it or roll it back first."""


class ConnectionUnsupported(ExchangeClientError):
    """The connection is of no driver that the client knows."""


# What is carried: files that come, replies that go.


def stored_json(body: Any) -> bytes:
    """Return a JSON value as the exchange stores it, byte for byte."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def sha256_of(content: bytes) -> str:
    """Return the digest by which contents are compared."""
    return hashlib.sha256(content).hexdigest()


class File:
    """A message that was handed out. Large ones are fetched when they are first looked at."""

    def __init__(self, facts: dict[str, Any], fetch: Callable[[str], bytes]) -> None:
        self.facts = facts
        self.name = str(facts["name"])
        self.id = str(facts["id"])
        self.sender = str(facts["sender"])
        self.sequence = facts.get("sequence")
        self.size = facts.get("size")
        self.sha256 = facts.get("sha256")
        self.media_type = facts.get("media_type")
        self._fetch = fetch
        self._content: bytes | None = None
        self._result: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<File {self.name}>"

    @property
    def content(self) -> bytes:
        """The stored bytes, compared with their digest. Raises ChecksumMismatch, NotAnswered."""
        if self._content is None:
            if self.facts.get("content_base64") is not None:
                content = base64.b64decode(self.facts["content_base64"])
            elif "body" in self.facts:
                content = stored_json(self.facts["body"])
            else:
                content = self._fetch(self.facts["href"])
            if self.sha256 and sha256_of(content) != self.sha256:
                raise ChecksumMismatch(f"{self.name} is not what was stored")
            self._content = content
        return self._content

    @property
    def body(self) -> Any:
        """The content as JSON."""
        return json.loads(self.content.decode("utf-8"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of a group, or the one that the file is: `[{id, body}]`."""
        body = self.body
        return body if self.facts.get("is_group") else [{"id": self.id, "body": body}]


class Reply:
    """What goes back, kept until the block is over."""

    def __init__(
        self,
        name: str,
        recipient: str,
        content: bytes,
        body: Any,
        media_type: str | None,
        reply_to: str | None,
    ) -> None:
        self.name = name
        self.recipient = recipient
        self.content = content
        self.body = body
        self.media_type = media_type
        self.reply_to = reply_to
        self.sha256 = sha256_of(content)

    @property
    def is_large(self) -> bool:
        """Whether it is uploaded by itself before it is named."""
        return len(self.content) > INLINE_BYTES_MOST

    def as_document(self) -> dict[str, Any]:
        """Return how the call `prepare` names it."""
        document: dict[str, Any] = {"name": self.name, "recipient": self.recipient}
        if self.reply_to is not None:
            document["reply_to"] = self.reply_to
        # Of one that goes along it is a check, of one uploaded before it is the name.
        document["sha256"] = self.sha256
        if self.is_large:
            return document
        if self.media_type is None:
            document["body"] = self.body
        else:
            document["content_base64"] = base64.b64encode(self.content).decode("ascii")
            document["media_type"] = self.media_type
        return document


class Work:
    """What one process is about. False when there is nothing to do; then `status` says why.

    `status` is STARTED, IDLE (nothing waits), BUSY (another instance is at it) or INFLIGHT (a
    former transaction on this database has not ended yet).
    """

    def __init__(self, status: str, answer: dict[str, Any], files: list[File]) -> None:
        process = answer.get("process") or {}
        self.status = status
        self.answer = answer
        self.id = str(process.get("id", ""))
        self.database = str(process.get("database", ""))
        self.files = files
        self.replies: list[Reply] = []
        self.is_confirmed = False
        self.is_cancelled = False
        # The name of the block's transaction in the ERP's database.
        self.block = "block-" + uuid.uuid4().hex
        self._results: dict[str, dict[str, Any]] = {}

    def __bool__(self) -> bool:
        return self.status == "STARTED"

    @property
    def retry_after(self) -> float:
        """After how many seconds it makes sense to ask again."""
        return float(self.answer.get("retry_after") or 0.0)

    @property
    def lease_seconds(self) -> float:
        """How long the exchange waits for a sign of life."""
        process = self.answer["process"]
        return max(_moment(process["expires_at"]) - _moment(process["started_at"]), 0.3)

    def reply(
        self,
        recipient: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        media_type: str | None = None,
        name: str | None = None,
        reply_to: File | str | None = None,
    ) -> Reply:
        """Send something back, seen by its recipient if and only if the block commits.

        `body` is JSON; `content` is bytes of a `media_type`. Nothing is sent before the block ends.
        """
        if content is None:
            media_type, content = None, stored_json(body)
        else:
            media_type = media_type or "application/octet-stream"
        answered = reply_to.id if isinstance(reply_to, File) else reply_to
        name = name or f"{self.id[:18]}-{len(self.replies) + 1}"
        reply = Reply(name, recipient, content, body, media_type, answered)
        self.replies.append(reply)
        return reply

    def defer(self, file: File, error: str = "", *, delay_seconds: float | None = None) -> None:
        """Leave a file for later: it is handed out again. Undo its effects with a savepoint."""
        result: dict[str, Any] = {"status": "DEFERRED", "error": error}
        if delay_seconds is not None:
            result["delay"] = delay_seconds
        self._results[file.name] = result

    def reject(self, file: File, error: str) -> None:
        """Say that a file cannot be processed as it is: it is put aside with the reason."""
        self._results[file.name] = {"status": "INCORRECT", "error": error}

    def as_document(self) -> dict[str, Any]:
        """Return the body of the call `prepare`."""
        replies = [reply.as_document() for reply in self.replies]
        return {"replies": replies, "results": self._results}


_MOMENT = re.compile(r"(\d+-\d+-\d+)[T ](\d+:\d+:\d+)(\.\d+)?(Z|[+-]\d\d:?\d\d)?$")


def _moment(text: str) -> float:
    """Read an ISO moment; that of Python 3.8 knows no Z and no five digits of a second."""
    found = _MOMENT.match(text)
    if found is None:
        raise NotAnswered(f"not a moment: {text!r}")
    zone = (found.group(4) or "Z").replace("Z", "+00:00")
    whole = datetime.strptime(f"{found.group(1)}T{found.group(2)}{zone}", "%Y-%m-%dT%H:%M:%S%z")
    return whole.timestamp() + float(found.group(3) or 0.0)


# The ERP's database: one class per engine, with the same few verbs.


class _Session:
    """The verbs over a DB-API connection; `?` stands for a parameter."""

    table = (
        "create table exchange_marker (process_id varchar(64) not null primary key,"
        " database_id varchar(64) not null, outcome varchar(10) not null, marker_seq bigint,"
        " written_at varchar(32) not null, is_acked smallint default 0 not null)"
    )

    index = "create index exchange_marker_seq on exchange_marker (database_id, marker_seq)"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def is_idle(self) -> bool:
        """Tell whether no transaction is open."""
        raise NotImplementedError

    def has_table(self) -> bool:
        """Tell whether the table of markers is there."""
        raise NotImplementedError

    def kind_of(self, error: Exception) -> str:
        """Return what an error of an insert means: `exists`, `ended`, `locked` or `other`."""
        raise NotImplementedError

    def begin(self, purpose: str = "work") -> None:
        """Begin a transaction to `work`, to `read` only, or to `probe` without waiting long."""
        raise NotImplementedError

    def guard(self, block: str, has_marker: bool) -> None:
        """Mark the transaction, so that a later call can find out what became of it. Repeatable."""
        raise NotImplementedError

    def is_same(self, block: str) -> bool:
        """Return whether the transaction is the one that was marked. Raises if it has failed."""
        raise NotImplementedError

    def open_flag(self) -> str:
        """Return an expression with one parameter, the block: 0 in its transaction, else null."""
        raise NotImplementedError

    def was_committed(self, block: str) -> bool | None:
        """Tell in a later transaction whether the marked one was committed; None: nobody knows."""
        raise NotImplementedError

    def unguard(self, block: str) -> None:
        """Take away what marked the transaction."""

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        cursor = self.cursor()
        try:
            cursor.execute(statement, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    @staticmethod
    def _releases(execute: Callable[[str], Any]) -> bool:
        """Whether the savepoint is there: it ends with its transaction, and no other has it."""
        try:
            execute("release savepoint exchange_block")
        except Exception as error:  # noqa: BLE001 - each driver has its own
            logger.debug("the block's savepoint is gone: %s", error)
            return False
        return True

    def cursor(self) -> Any:
        """Open a cursor whose rows are tuples, whatever the program has its rows made into."""
        return self.connection.cursor()

    def commit(self) -> None:
        """Commit."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll back."""
        self.connection.rollback()


class _Sqlite(_Session):
    def is_idle(self) -> bool:
        # With autocommit=False (Python 3.12) a transaction is always open and begins by itself.
        return self._is_implicit or not self.connection.in_transaction

    @property
    def _is_implicit(self) -> bool:
        return getattr(self.connection, "autocommit", None) is False

    def has_table(self) -> bool:
        found = self.execute("select 1 from sqlite_master where name = 'exchange_marker'")
        return bool(found)

    def kind_of(self, error: Exception) -> str:
        if "NOT NULL" in str(error) or "exchange_block" in str(error):
            return "ended"
        if type(error).__name__ == "IntegrityError":
            return "exists"
        return "locked" if "locked" in str(error) or "busy" in str(error) else "other"

    def cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor

    def begin(self, purpose: str = "work") -> None:
        if not self._is_implicit:
            # What will write says so at once: one that turns from reading to writing may be
            # refused. The connection's own time-out bounds the waiting, in a probe too.
            self.execute("begin" if purpose == "read" else "begin immediate")

    def guard(self, block: str, has_marker: bool) -> None:  # noqa: ARG002
        # A temporary table is the connection's own, and yet goes with its transactions.
        self.execute("create temp table if not exists exchange_block (id text)")
        self.execute("insert into exchange_block values (?)", (block,))
        self.execute("savepoint exchange_block")

    def is_same(self, block: str) -> bool:  # noqa: ARG002
        return self._releases(self.execute)

    def open_flag(self) -> str:
        return "(select 0 from exchange_block where id = ?)"

    def was_committed(self, block: str) -> bool | None:
        table = self.execute("select 1 from sqlite_temp_master where name = 'exchange_block'")
        found = table and self.execute("select 1 from exchange_block where id = ?", (block,))
        return bool(found)

    def unguard(self, block: str) -> None:  # noqa: ARG002
        self.execute("delete from exchange_block")


# One setting ends with its transaction, the other stays if and only if that commits. Neither is a
# query: the block may still choose its isolation level.
GUARD_POSTGRES = "set local postroad.block_open = '{0}'; set postroad.block_committed = '{0}'"
IS_SAME_POSTGRES = "select current_setting('postroad.block_open', true)"
OPEN_FLAG_POSTGRES = "case current_setting('postroad.block_open', true) when ? then 0 end"
KINDS_POSTGRES = {
    "23505": "exists",
    "23502": "ended",
    **dict.fromkeys(("55P03", "57014", "40001", "40P01"), "locked"),
}
WAS_COMMITTED_POSTGRES = "select current_setting('postroad.block_committed', true)"


class _Postgres(_Session):
    def is_idle(self) -> bool:
        return int(self.connection.info.transaction_status) == 0

    def has_table(self) -> bool:
        (found,) = self.execute("select to_regclass('exchange_marker') is not null")
        return bool(found[0])

    def kind_of(self, error: Exception) -> str:
        return KINDS_POSTGRES.get(getattr(error, "sqlstate", None) or "", "other")

    def begin(self, purpose: str = "work") -> None:
        if self.connection.autocommit:
            self.execute("begin")
        if purpose == "probe":
            self.execute("set local lock_timeout = '500ms'")

    def guard(self, block: str, has_marker: bool) -> None:  # noqa: ARG002
        with self.cursor() as cursor:
            cursor.execute(GUARD_POSTGRES.format(block), prepare=False)

    def is_same(self, block: str) -> bool:
        return bool(self.execute(IS_SAME_POSTGRES)[0][0] == block)

    def open_flag(self) -> str:
        return OPEN_FLAG_POSTGRES

    def was_committed(self, block: str) -> bool | None:
        return bool(self.execute(WAS_COMMITTED_POSTGRES)[0][0] == block)

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        # Whatever row factory the connection has, rows are needed in the order of their columns.
        return super().execute(statement.replace("?", "%s"), parameters)

    def cursor(self) -> Any:
        rows = importlib.import_module("psycopg.rows")
        return self.connection.cursor(row_factory=rows.tuple_row)

    def commit(self) -> None:
        with self.cursor() as cursor:
            cursor.execute("commit")
            if cursor.statusmessage != "COMMIT":
                # PostgreSQL does so with a transaction in which something has failed.
                raise TransactionEnded("the database rolled back where COMMIT was asked for")

    def rollback(self) -> None:
        if self.connection.autocommit:
            self.execute("rollback")
        else:
            self.connection.rollback()


# isc_not_valid: a value violates its column's constraint, here NOT NULL.
NULL_FIREBIRD = 335544347


class _Firebird(_Session):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._probe: Any = None
        self._has_row = False

    def is_idle(self) -> bool:
        return not self.connection.main_transaction.is_active()

    def has_table(self) -> bool:
        found = self.execute(
            "select 1 from rdb$relations where rdb$relation_name = 'EXCHANGE_MARKER'"
        )
        return bool(found)

    def kind_of(self, error: Exception) -> str:
        # With NO WAIT a key that another transaction has not committed counts as a violation, too.
        code = getattr(error, "sqlstate", None)
        if NULL_FIREBIRD in (getattr(error, "gds_codes", None) or ()):
            return "ended"
        if code in ("23000", "23505"):
            return "exists"
        return "locked" if code in ("40001", "40P01") else "other"

    def begin(self, purpose: str = "work") -> None:
        if purpose == "probe":
            driver = importlib.import_module("firebird.driver")
            kind = driver.Isolation.READ_COMMITTED_RECORD_VERSION
            self._probe = self.connection.transaction_manager(driver.tpb(kind, lock_timeout=0))
            self._probe.begin()
        else:
            self.connection.begin()

    def guard(self, block: str, has_marker: bool) -> None:
        self._has_row = has_marker
        if has_marker:
            self.execute(
                "update or insert into exchange_marker"
                " (process_id, database_id, outcome, marker_seq, written_at, is_acked)"
                " values (?, '', 'OPEN', null, ?, 1)",
                (block, _now()),
            )
        self.connection.execute_immediate("savepoint exchange_block")

    def is_same(self, block: str) -> bool:  # noqa: ARG002
        return self._releases(self.connection.execute_immediate)

    def open_flag(self) -> str:
        return "(select 0 from exchange_marker where process_id = ?)"

    def was_committed(self, block: str) -> bool | None:
        # Without a table of its own there is no trace that only a commit leaves.
        if not self._has_row:
            self.execute("select 1 from rdb$database")
            return None
        found = self.execute("select 1 from exchange_marker where process_id = ?", (block,))
        return bool(found)

    def unguard(self, block: str) -> None:
        if self._has_row:
            self.execute("delete from exchange_marker where process_id = ?", (block,))

    def cursor(self) -> Any:
        return (self._probe or self.connection).cursor()

    def commit(self) -> None:
        self._end("commit")

    def rollback(self) -> None:
        self._end("rollback")

    def _end(self, verb: str) -> None:
        probe, self._probe = self._probe, None
        if probe is None:
            getattr(self.connection, verb)()
            return
        try:
            getattr(probe, verb)()
        finally:
            probe.close()


SESSIONS = {"sqlite3": _Sqlite, "psycopg": _Postgres, "firebird": _Firebird}


def session_of(connection: Any) -> _Session:
    """Return the verbs for a connection, by its driver. Raises ConnectionUnsupported."""
    for kind in type(connection).__mro__:
        found = SESSIONS.get(kind.__module__.partition(".")[0])
        if found is not None:
            return found(connection)
    raise ConnectionUnsupported(
        f"{type(connection)} is no connection of psycopg, sqlite3 or firebird-driver"
    )


# The protocol: steps that say what to do and are told what came of it. They touch neither socket
# nor database themselves, so the same steps serve blocking and asynchronous programs.

Steps = Generator[Tuple[Any, ...], Any, Any]


def created(may_create: bool) -> Steps:
    """See to it that the table of markers is there."""
    yield ("session", "begin", "read")
    is_there = yield ("session", "has_table")
    yield ("session", "rollback")
    if is_there:
        return
    if not may_create:
        raise ExchangeClientError("the table exchange_marker is missing")
    yield ("session", "begin")
    try:
        yield ("session", "execute", _Session.table)
        yield ("session", "commit")
        yield ("session", "begin")
        yield ("session", "execute", _Session.index)
        yield ("session", "commit")
    except Exception:
        # Another instance may have made it at the same moment.
        yield ("session", "rollback")
        yield ("session", "begin", "read")
        is_there = yield ("session", "has_table")
        yield ("session", "rollback")
        if not is_there:
            raise


def written(process: str, database: str, block: str) -> Steps:
    """Write the marker of a process, in the transaction that it is about and in no other.

    A transaction that was ended elsewhere, for instance by a pool that took its connection back
    while `prepare` was under way, violates the column's not-null constraint.
    """
    flag = yield ("session", "open_flag")
    (highest,) = yield (
        "session",
        "execute",
        "select max(marker_seq) from exchange_marker where database_id = ?",
        (database,),
    )
    yield (
        "session",
        "execute",
        "insert into exchange_marker"  # noqa: S608 - the flag is a constant
        " (process_id, database_id, outcome, marker_seq, written_at, is_acked)"
        " values (?, ?, 'COMMITTED', ?, ?, " + flag + ")",
        (process, database, (highest[0] or 0) + 1, _now(), block),
    )


def settled(process: str, database: str) -> Steps:
    """Decide an open process by the tombstone: return COMMITTED, ABORTED or INFLIGHT."""
    kind = "exists"
    try:
        yield ("session", "begin", "probe")
        yield (
            "session",
            "execute",
            "insert into exchange_marker"
            " (process_id, database_id, outcome, marker_seq, written_at, is_acked)"
            " values (?, ?, 'ABORTED', null, ?, 1)",
            (process, database, _now()),
        )
        yield ("session", "commit")
    except Exception as error:
        yield ("session", "rollback")
        kind = yield ("session", "kind_of", error)
        if kind == "other":
            raise
    else:
        return ABORTED
    if kind == "locked":
        return INFLIGHT
    yield ("session", "begin", "probe")
    rows = yield (
        "session",
        "execute",
        "select outcome from exchange_marker where process_id = ?",
        (process,),
    )
    yield ("session", "rollback")
    # A key that is there and cannot be seen belongs to somebody who has not committed yet.
    return rows[0][0] if rows else INFLIGHT


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def markers(database: str) -> Steps:
    """Return the highest marker of a database, and those the exchange may not have heard of."""
    yield ("session", "begin", "read")
    (highest,) = yield (
        "session",
        "execute",
        "select max(marker_seq) from exchange_marker where database_id = ?",
        (database,),
    )
    unheard = yield (
        "session",
        "execute",
        "select process_id, outcome from exchange_marker where database_id = ? and is_acked = 0",
        (database,),
    )
    yield ("session", "rollback")
    return highest[0] or 0, {row[0]: row[1] for row in unheard}


def _acknowledged(processes: Iterable[str]) -> Steps:
    """Note that the exchange has heard of these markers. Only a convenience: it may fail."""
    try:
        yield ("session", "begin", "probe")
        for process in processes:
            yield (
                "session",
                "execute",
                "update exchange_marker set is_acked = 1 where process_id = ? and is_acked = 0",
                (process,),
            )
        if random.randrange(CLEAN_UP_ONE_IN) == 0:  # noqa: S311 - not a secret
            yield from cleaned(MARKERS_KEPT_DAYS)
        yield ("session", "commit")
    except Exception as error:  # noqa: BLE001 - it is reported again, which is harmless
        logger.debug("markers not acknowledged: %s", error)
        yield ("session", "rollback")


def cleaned(days: float) -> Steps:
    """Forget old markers that the exchange has heard of; the highest of a database stays."""
    oldest = datetime.now(timezone.utc) - timedelta(days=days)
    yield (
        "session",
        "execute",
        "delete from exchange_marker where is_acked = 1 and written_at < ? and (marker_seq is null"
        " or marker_seq < (select max(m.marker_seq) from exchange_marker m"
        " where m.database_id = exchange_marker.database_id))",
        (oldest.isoformat(timespec="seconds"),),
    )


def started(database: str, request: dict[str, Any], may_create: bool | None) -> Steps:
    """Begin a process; settle on the way what is in doubt. Returns the answer.

    `may_create` is None where there is no marker.
    """
    if not (yield ("session", "is_idle")):
        raise ConnectionBusy("the connection has an open transaction; commit or roll back first")
    request = dict(request, database=database, attempt=uuid.uuid4().hex)
    resolved: dict[str, str] = {}
    if may_create is not None:
        yield from created(may_create)
        request["marker_seq"], resolved = yield from markers(database)
    heard = list(resolved)
    for number in range(SETTLE_ROUNDS_MOST):
        if resolved:
            request["resolved"] = resolved
        answer = yield ("http", "start", request)
        status = answer["status"]
        # BUSY: another instance's process may still be ready, and is not settled by this report.
        if heard and status != "BUSY":
            yield from _acknowledged(heard)
            heard = []
        if status == "STARTED" and answer["process"]["state"] != "STARTED":
            # The answer came so late that the process has ended meanwhile.
            request["attempt"] = uuid.uuid4().hex
        elif status == "RESTORED":
            if may_create is not None:
                # Another instance may have committed between the look at the marker and the call.
                before = request["marker_seq"]
                request["marker_seq"], resolved = yield from markers(database)
                heard = list(resolved)
                if request["marker_seq"] > before:
                    continue
            raise DatabaseRestored(
                "database {} was restored from a backup: its last marker is {}, and {} was"
                " committed".format(database, answer.get("got"), answer.get("last")),
                answer.get("last"),
                answer.get("got"),
            )
        elif status != "RESOLVE":
            return answer
        elif may_create is None:
            return dict(answer, status="INFLIGHT", retry_after=answer.get("retry_after") or 5)
        else:
            resolved = {}
            for process in answer["processes"]:
                resolved[process] = yield from settled(process, database)
            if INFLIGHT in resolved.values():
                # Told all the same, and asked again in a moment: whoever is at it will end.
                if number >= 2:
                    return dict(answer, status="INFLIGHT", retry_after=2)
                yield ("http", "pause", PAUSE_SECONDS_FIRST * 2 ** (number + 1))
    raise NotAnswered(f"the exchange asked again and again about {sorted(resolved)}")


def finished(work: Work, database: str, has_marker: bool) -> Steps:
    """End a block that did not raise: prepare, marker, COMMIT, confirm."""
    fate = yield from _fate(work)
    if fate == COMMITTED:
        fate = yield from _rest_committed(work, has_marker)
    if fate == ABORTED:
        said = "its transaction failed or was rolled back inside the block"
        yield from undone(work, said, "fail")
        raise TransactionEnded(f"process {work.id}: {said}")
    if fate in (PARTLY, UNKNOWN):
        said = "the block ended its transaction itself, and its work may be done in part"
        yield from _put_aside(work, database, has_marker, said)
        raise TransactionEnded(f"process {work.id}: {said}")
    yield from _confirmed(work, database, has_marker)
    if fate == COMMITTED:
        raise TransactionEnded(
            f"process {work.id}: the block committed its transaction itself; it is confirmed now,"
            " and would have been done twice had this program died in between"
        )


def failed(work: Work, database: str, has_marker: bool, error: str) -> Steps:
    """End a block that raised: roll back and tell it, unless it has committed something itself."""
    fate = yield from _fate(work)
    if fate in (OPEN, ABORTED):
        yield from undone(work, error, "fail")
    else:
        said = f"the block ended its transaction itself, and failed after it: {error}"
        yield from _put_aside(work, database, has_marker, said)


def _fate(work: Work) -> Steps:
    """What became of the block's transaction: OPEN, COMMITTED, ABORTED, PARTLY or UNKNOWN."""
    is_spoilt = False
    try:
        try:
            if (yield ("session", "is_same", work.block)):
                return OPEN
        except Exception as error:  # noqa: BLE001 - it has failed, or the connection is gone
            logger.debug("process %s: its transaction has failed: %s", work.id, error)
            is_spoilt = True
            yield ("session", "rollback")
        was_committed = yield ("session", "was_committed", work.block)
    except Exception as error:  # noqa: BLE001 - a connection that is gone has rolled back
        logger.debug("process %s: the connection is gone: %s", work.id, error)
        return ABORTED
    if was_committed is None:
        return UNKNOWN
    if not was_committed:
        return ABORTED
    return PARTLY if is_spoilt else COMMITTED


def _rest_committed(work: Work, has_marker: bool) -> Steps:
    """Commit what a block did after a COMMIT of its own, and begin a transaction to confirm in."""
    try:
        if not (yield ("session", "is_idle")):
            yield ("session", "commit")
        yield ("session", "begin")
        yield ("session", "guard", work.block, has_marker)
    except Exception as error:  # noqa: BLE001 - what came before stays committed
        logger.debug("process %s: the rest was not committed: %s", work.id, error)
        return PARTLY
    return COMMITTED


def _put_aside(work: Work, database: str, has_marker: bool, said: str) -> Steps:
    """Have the files of a block put aside that has, or may have, committed some of its work.

    Handing them out again by itself would do that twice.
    """
    work.replies.clear()
    for file in work.files:
        work.reject(file, said[:1000])
    try:
        yield ("session", "rollback")
        yield ("session", "begin")
        yield ("session", "guard", work.block, has_marker)
        yield from _confirmed(work, database, has_marker)
    except Exception as error:  # noqa: BLE001 - told, and there is nothing better to be done
        logger.error("process %s: its files were not put aside: %s", work.id, error)  # noqa: TRY400


def _confirmed(work: Work, database: str, has_marker: bool) -> Steps:
    """Prepare, marker, COMMIT, confirm, in the transaction that is open."""
    try:
        for reply in work.replies:
            if reply.is_large:
                yield ("http", "upload", work.id, reply)
        answer = yield ("http", "prepare", work.id, work.as_document())
    except Exception as error:
        # Whether it was prepared is not known; that it is rolled back is.
        yield from undone(work, f"prepare: {error}")
        raise
    if answer["status"] != "OK":
        yield ("session", "rollback")
        raise ProcessCancelled(f"process {work.id} is not ours any more")
    try:
        if has_marker:
            yield from written(work.id, database, work.block)
        yield ("session", "unguard", work.block)
    except Exception as error:
        # COMMIT was not sent, so this is certain.
        kind = yield ("session", "kind_of", error)
        yield from undone(work, str(error))
        if kind == "exists":
            raise ProcessCancelled(f"process {work.id} was settled as aborted") from error
        if kind == "ended":
            raise TransactionEnded(
                f"process {work.id}: its transaction was ended while the block was being left"
            ) from error
        raise
    try:
        yield ("session", "commit")
    except TransactionEnded as error:
        yield from undone(work, str(error))
        raise
    except Exception as error:
        outcome = yield from _looked_up(work.id, database, has_marker)
        if outcome == ABORTED:
            yield ("http", "quietly", "abort", work.id, str(error))
            raise
        if outcome != COMMITTED:
            raise OutcomeUnknown(
                f"whether process {work.id} was committed is not known yet: {error}"
            ) from error
    try:
        yield ("http", "commit", work.id)
    except NotAnswered as error:
        # The marker says it to whoever asks, and the next process tells it by itself.
        logger.warning("process %s is committed and not confirmed yet: %s", work.id, error)
        return
    except Refused as error:
        raise Settled(f"process {work.id} was committed, but: {error}") from error
    work.is_confirmed = True
    if has_marker:
        yield from _acknowledged([work.id])


def _looked_up(process: str, database: str, has_marker: bool) -> Steps:
    """After a COMMIT that failed: what became of it? None when the connection cannot tell."""
    try:
        yield ("session", "rollback")
        if not has_marker:
            return None
        return (yield from settled(process, database))
    except Exception as error:  # noqa: BLE001 - the connection is gone; others will settle it
        logger.warning("process %s is in doubt: %s", process, error)
        return None


def undone(work: Work, error: str, call: str = "abort") -> Steps:
    """End a block that failed: roll back, and tell it; time-outs tell it if nobody can."""
    try:
        yield ("session", "rollback")
    except Exception as failure:  # noqa: BLE001 - a connection that is gone has rolled back
        logger.debug("process %s: no roll-back: %s", work.id, failure)
    yield ("http", "quietly", call, work.id, error)


# Carrying the steps out, blocking.


class Exchange:
    """The exchange over HTTP. Safe to share between threads.

    `timeout` is how long one answer may take, `patience` how long a call is tried in all, both in
    seconds. A `context` is an `ssl.SSLContext` for servers with certificates of their own.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = TIMEOUT_SECONDS_DEFAULT,
        patience: float = PATIENCE_SECONDS_DEFAULT,
        context: Any = None,
    ) -> None:
        base = url.rstrip("/")
        self.url = base if base.endswith("/exchange/v1") else base + "/exchange/v1"
        self.timeout = timeout
        self.patience = patience
        self._token = token
        handlers = [urllib.request.HTTPSHandler(context=context)] if context else []
        self._opener = urllib.request.build_opener(*handlers)

    # Senders and recipients.

    def send(
        self,
        database: str,
        body: Any = None,
        *,
        id: str | None = None,
        recipient: str | None = None,
        order: int | None = None,
        content: bytes | None = None,
        media_type: str | None = None,
        messages: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Put a message into a database's mailbox; durable when this returns.

        Give the `id` of your own record: then sending again, after a crash too, is harmless.
        """
        document: dict[str, Any] = {"id": id or uuid.uuid4().hex, "database": database}
        if messages is not None:
            document["messages"] = messages
            stored = stored_json([{"id": one["id"], "body": one["body"]} for one in messages])
        elif content is not None:
            document["content_base64"] = base64.b64encode(content).decode("ascii")
            document["media_type"] = media_type or "application/octet-stream"
            stored = content
        else:
            document["body"] = body
            stored = stored_json(body)
        if recipient is not None:
            document["recipient"] = recipient
        if order is not None:
            document["order"] = order
        answer = self._call("POST", "/messages", document, ("OK",))
        if answer.get("sha256") not in (None, sha256_of(stored)):
            raise ChecksumMismatch("message {} arrived as something else".format(document["id"]))
        return answer

    def status(self, id: str) -> dict[str, Any]:
        """Return what became of a message of this client: `state`, `error` and more."""
        return self._call("GET", "/messages/{}/status".format(urllib.parse.quote(id, safe="")))

    def receive(self, limit: int = 100, max_bytes: int | None = None) -> list[File]:
        """Return the replies addressed to this client, oldest first; `ack` each when it is safe."""
        query = {"limit": limit}
        if max_bytes is not None:
            query["max_bytes"] = max_bytes
        answer = self._call("GET", "/messages?" + urllib.parse.urlencode(query))
        return [File(facts, self.fetch) for facts in answer["items"]]

    def ack(self, message: File | str) -> None:
        """Say that a reply is safe here; it is not received again. Repeatable."""
        name = message.id if isinstance(message, File) else message
        self._call("DELETE", "/messages/" + urllib.parse.quote(name, safe=""))

    def fetch(self, href: str) -> bytes:
        """Return the bytes behind a link of the exchange."""
        return bytes(self._try("GET", urllib.parse.urljoin(self.url + "/", href), None, {}))

    # The calls of the protocol, one by one. `process` makes them in the right order.

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        """API_1: begin a process."""
        statuses = ("STARTED", "IDLE", "BUSY", "RESOLVE", "RESTORED")
        return self._call("POST", "/processes", request, statuses)

    def choose(
        self,
        process: str,
        files: Iterable[File | str],
        *,
        reason: str | None = None,
        delay_seconds: float | None = None,
    ) -> dict[str, Any]:
        """API_2: name the files that will be processed; the others come again later."""
        names = [file.name if isinstance(file, File) else file for file in files]
        document: dict[str, Any] = {"files": names}
        if reason is not None:
            document["reason"] = reason
        if delay_seconds is not None:
            document["delay"] = delay_seconds
        return self._call("PUT", self._of(process, "files"), document, ("OK", "CANCELLED"))

    def upload(self, process: str, reply: Reply) -> dict[str, Any]:
        """Upload a large reply before `prepare` names it."""
        path = "{}/{}?{}".format(
            self._of(process, "replies"),
            urllib.parse.quote(reply.name, safe=""),
            urllib.parse.urlencode({"recipient": reply.recipient}),
        )
        headers = {
            "Content-Type": reply.media_type or "application/json",
            "X-Content-SHA256": reply.sha256,
        }
        answer = self._read(
            lambda: self._once("PUT", self.url + path, reply.content, headers),
            ("OK", "CANCELLED"),
        )
        if answer.get("sha256") not in (None, reply.sha256):
            raise ChecksumMismatch(f"{reply.name} arrived as something else")
        return answer

    def prepare(self, process: str, document: dict[str, Any]) -> dict[str, Any]:
        """API_3: hand over replies and results; from OK on the transaction may commit."""
        return self._call("POST", self._of(process, "prepare"), document, ("OK", "CANCELLED"))

    def commit(self, process: str) -> dict[str, Any]:
        """API_4: the transaction was committed."""
        return self._call("POST", self._of(process, "commit"), {}, ("OK",))

    def abort(self, process: str, error: str = "") -> dict[str, Any]:
        """API_5: the transaction was rolled back."""
        return self._call("POST", self._of(process, "abort"), {"error": error[:1000]}, ("OK",))

    def fail(self, process: str, error: str = "") -> dict[str, Any]:
        """API_6: processing failed."""
        return self._call("POST", self._of(process, "fail"), {"error": error[:1000]}, ("OK",))

    def renew(self, process: str, patience: float = 0.0) -> dict[str, Any]:
        """Give a sign of life."""
        path = self._of(process, "renew")
        return self._call("POST", path, {}, ("OK", "CANCELLED"), patience=patience)

    def resolve(self, process: str, outcome: str) -> dict[str, Any]:
        """Tell what became of a process: COMMITTED, ABORTED or INFLIGHT."""
        return self._call("POST", self._of(process, "resolve"), {"outcome": outcome})

    def quietly(self, call: str, process: str, error: str) -> None:
        """Tell the exchange of a failure if it answers soon; its time-out finds out otherwise."""
        try:
            path = self._of(process, call)
            self._call("POST", path, {"error": error[:1000]}, patience=self.patience / 4)
        except ExchangeClientError as failure:
            logger.warning("process %s: %s was not told: %s", process, call, failure)

    @staticmethod
    def pause(seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    # The whole of it.

    def process(
        self,
        database: str,
        connection: Any,
        *,
        recipient: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        senders: list[str] | None = None,
        has_marker: bool = True,
        may_create: bool = True,
    ) -> Process:
        """Give a block in which the files of one process are worked on, in one transaction.

        Without a marker (`has_marker=False`, for a database whose schema must not change) a process
        in doubt waits for an administrator. `may_create` lets the table of markers be created.

        The block's `with` raises what the block raised, else ProcessCancelled (rolled back, others
        have the files), TransactionEnded, OutcomeUnknown, NotAnswered, Refused, DatabaseRestored,
        ConnectionBusy.
        """
        wishes = {
            "recipient": recipient,
            "max_files": max_files,
            "max_bytes": max_bytes,
            "senders": senders,
        }
        request = {name: wish for name, wish in wishes.items() if wish is not None}
        return Process(self, database, session_of(connection), request, has_marker, may_create)

    def settle(self, database: str, connection: Any, processes: Iterable[str]) -> dict[str, str]:
        """Settle processes by the marker and tell the exchange; returns their outcomes."""
        session = session_of(connection)
        outcomes: dict[str, str] = {}
        for process in processes:
            outcomes[process] = carry_out(settled(process, database), self, session)
            self.resolve(process, outcomes[process])
        return outcomes

    # One call.

    @staticmethod
    def _of(process: str, what: str) -> str:
        return "/processes/{}/{}".format(urllib.parse.quote(process, safe=""), what)

    def _call(
        self,
        method: str,
        path: str,
        document: dict[str, Any] | None = None,
        statuses: tuple[str, ...] = (),
        patience: float | None = None,
    ) -> dict[str, Any]:
        data = None if document is None else json.dumps(document).encode("utf-8")
        headers = {} if data is None else {"Content-Type": "application/json"}
        url = self.url + path
        return self._read(lambda: self._once(method, url, data, headers), statuses, patience)

    def _read(
        self,
        once: Callable[[], bytes],
        statuses: tuple[str, ...] = (),
        patience: float | None = None,
    ) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            content = once()
            try:
                answer = json.loads(content.decode("utf-8"))
            except ValueError:
                raise NotAnswered("the answer is no JSON") from None
            # An answer is one of a closed set; anything else is no answer at all.
            if not isinstance(answer, dict) or (statuses and answer.get("status") not in statuses):
                raise NotAnswered("the answer makes no sense")
            return answer

        answer: dict[str, Any] = self._repeat(read, patience)
        return answer

    def _try(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        content: bytes = self._repeat(lambda: self._once(method, url, data, headers))
        return content

    def _repeat(self, call: Callable[[], Any], patience: float | None = None) -> Any:
        """Repeat a call until it is answered or patience runs out."""
        limit = self.patience if patience is None else patience
        deadline = time.monotonic() + limit
        for number in itertools.count():
            try:
                return call()
            except NotAnswered as failure:  # noqa: PERF203 - that is what it is for
                pause = min(PAUSE_SECONDS_FIRST * 2.0**number, PAUSE_SECONDS_LONGEST)
                pause *= 0.5 + random.random() / 2  # noqa: S311 - not a secret
                pause = max(pause, min(failure.retry_after or 0.0, PAUSE_SECONDS_LONGEST))
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
        raise AssertionError  # never reached

    def _once(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        request.add_header("Authorization", "Bearer " + self._token)
        request.add_header("Accept", "application/json")
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                content = bytes(response.read())
                # An answer that was cut within its head would else pass for a short one.
                if response.length is None and not getattr(response, "chunked", False):
                    raise NotAnswered("the answer was cut")
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"{method} {url}: {error}") from error


def _refusal(error: urllib.error.HTTPError) -> ExchangeClientError:
    try:
        problem = json.loads(error.read().decode("utf-8"))
    except (ValueError, OSError, http.client.HTTPException):
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    said = problem.get("detail") or problem.get("title") or error.reason
    message = f"{error.code} {said}"
    if error.code >= 500 or error.code in (408, 425, 429):
        after = error.headers.get("Retry-After", "")
        return NotAnswered(message, float(after) if after.isdigit() else None)
    return Refused(message, error.code, problem)


def carry_out(steps: Steps, exchange: Any, session: Any) -> Any:
    """Carry out steps, blocking; each step is told what came of the one before."""
    targets = {"http": exchange, "session": session}
    try:
        step = next(steps)
        while True:
            try:
                result = getattr(targets[step[0]], step[1])(*step[2:])
            except BaseException as error:  # noqa: BLE001, PERF203 - the steps decide
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value


class Process:
    """The block of `Exchange.process`."""

    def __init__(
        self,
        exchange: Exchange,
        database: str,
        session: _Session,
        request: dict[str, Any],
        has_marker: bool,
        may_create: bool,
    ) -> None:
        self._exchange = exchange
        self._database = database
        self._session = session
        self._request = request
        self._has_marker = has_marker
        self._may_create = may_create
        self._work: Work | None = None
        self._ended = threading.Event()

    def _carry_out(self, steps: Steps) -> Any:
        return carry_out(steps, self._exchange, self._session)

    def __enter__(self) -> Work:
        may_create = self._may_create if self._has_marker else None
        answer = self._carry_out(started(self._database, self._request, may_create))
        process = answer.get("process") or {}
        files = [File(facts, self._exchange.fetch) for facts in process.get("files", ())]
        self._work = Work(answer["status"], answer, files)
        try:
            for file in files:
                # What came along is compared at once, what is behind a link when it is fetched.
                if "href" not in file.facts:
                    file.content  # noqa: B018 - looking is the check
            self._session.begin()
            if self._work:
                self._session.guard(self._work.block, self._has_marker)
        except BaseException as error:
            if self._work:
                self._exchange.quietly("fail", self._work.id, str(error))
            raise
        if self._work:
            threading.Thread(target=self._renew, args=(self._work,), daemon=True).start()
        return self._work

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        work = self._work
        assert work is not None  # noqa: S101 - __enter__ made it
        try:
            if not work:
                self._session.rollback() if kind else self._session.commit()
            elif kind is not None:
                said = f"{kind.__name__}: {error}"
                self._carry_out(failed(work, self._database, self._has_marker, said))
            elif work.is_cancelled:
                self._session.rollback()
                raise ProcessCancelled(f"process {work.id} is not ours any more")
            else:
                self._carry_out(finished(work, self._database, self._has_marker))
        finally:
            self._ended.set()

    def _renew(self, work: Work) -> None:
        while not self._ended.wait(work.lease_seconds / 3):
            try:
                answer = self._exchange.renew(work.id)
            except Refused:
                work.is_cancelled = True
            except ExchangeClientError as failure:
                logger.debug("process %s was not renewed: %s", work.id, failure)
            else:
                work.is_cancelled = answer["status"] == "CANCELLED"
            if work.is_cancelled:
                return
