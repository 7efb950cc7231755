"""The exchange's client in one file: the standard library only, Python 3.8 or newer. Copy it.

    exchange = Exchange("https://exchange.example.com", token="...")
    with exchange.process("db_a", connection) as work:
        for file in work.files:
            connection.execute("insert into orders ...", file.body)
            work.reply(file.sender, {"status": "taken"}, reply_to=file)

`connection` is a connection of psycopg (PostgreSQL), sqlite3 or firebird-driver without an open
transaction. The block is one transaction, which ends with the block:

    begin ── block ── prepare ──> marker, COMMIT ──> confirm ── acknowledge the marker
                │         │              │
                │         │              └─ COMMIT failed: read the outcome from the marker
                │         └─ CANCELLED or no answer: roll back, abort
                └─ the block raised, or its transaction failed or was rolled back in it: roll back,
                   report the failure, raise

The block neither commits nor rolls back. After an SQL error that it catches, it rolls back to a
savepoint of its own: otherwise the whole transaction has failed, and the block raises
TransactionEnded. A block that commits all the same is detected. Committed work must not be done
twice: it is confirmed if the block ran to its end, otherwise its files are parked for an
administrator. TransactionEnded is raised in either case.

The marker is a row with the process's id in the ERP's own database (table `exchange_marker`),
written in the block's transaction. It settles a process whose outcome the exchange does not have:
any instance tries to insert the same key as ABORTED. If the insert succeeds, the first transaction
can no longer commit; if the key exists, its row is the outcome; if the key exists and its row is
not visible, the first transaction is still open. Nothing is ever guessed.

Every call is idempotent: its ids are created once. A call without an answer is repeated until
`patience` has passed. Contents are compared by their sha256 on both sides.
"""

from __future__ import annotations

import base64
import contextlib
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
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Iterable

__all__ = [
    "ChecksumMismatch", "ConnectionBusy", "ConnectionUnsupported", "DatabaseRestored",
    "Exchange", "ExchangeClientError", "File", "NotAnswered", "OutcomeUnknown", "Process",
    "ProcessCancelled", "Refused", "Reply", "Settled", "TransactionEnded", "Work",
]  # fmt: skip

logger = logging.getLogger("postroad.exchange.client")

TIMEOUT_SECONDS_DEFAULT = 30.0
PATIENCE_SECONDS_DEFAULT = 60.0
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 5.0
MAX_INLINE_BYTES = 256 * 1024
MEDIA_TYPE_DEFAULT = "application/octet-stream"
JSON_HEADERS = {"Content-Type": "application/json"}
VERDICTS = "OK", "CANCELLED"
MARKERS_KEPT_DAYS = 30
CLEAN_UP_ONE_IN = 200
MAX_SETTLE_ROUNDS = 20

COMMITTED, ABORTED, INFLIGHT = "COMMITTED", "ABORTED", "INFLIGHT"
# Further states of a block's transaction: open, or perhaps committed in part.
OPEN, PARTLY = "OPEN", "PARTLY"


class ExchangeClientError(Exception):
    """The family of the client's errors."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


class NotAnswered(ExchangeClientError):
    """No valid answer until `patience` had passed. Try again later."""

    retry_after: float | None = None


class Refused(ExchangeClientError):
    """The exchange refuses the call; a retry does not help."""

    status: int
    problem: dict[str, Any]


class ProcessCancelled(ExchangeClientError):
    """The process ended during the block; its transaction was rolled back."""


class OutcomeUnknown(ExchangeClientError):
    """The connection broke in COMMIT. The next process on this database settles it."""


class Settled(ExchangeClientError):
    """The transaction was committed, and the exchange has another outcome for the process."""


class TransactionEnded(ExchangeClientError):
    """The block's transaction failed inside the block, or was ended there.

    An SQL error that the block caught makes the transaction fail unless it was rolled back to a
    savepoint. The block may neither commit nor roll back. A failed or rolled back block is handed
    out again; a block that has committed is not.
    """


class DatabaseRestored(ExchangeClientError):
    """The database is older than its last commit: it was restored from a backup."""

    last: Any
    got: Any


class ChecksumMismatch(ExchangeClientError):
    """The received content differs from what was sent."""


class ConnectionBusy(ExchangeClientError):
    """The connection has an open transaction; commit it or roll it back first."""


class ConnectionUnsupported(ExchangeClientError):
    """The connection is of a driver that the client does not support."""


class _Logged(contextlib.suppress):
    """Log an error of any class, because drivers differ, and continue."""

    def __init__(self, what: str, level: int = logging.DEBUG) -> None:
        super().__init__(Exception)
        self._place = what, level

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        if error is not None:
            logger.log(self._place[1], "%s: %s", self._place[0], error)
        return super().__exit__(kind, error, traceback)


def stored_json(body: Any) -> bytes:
    """Return a JSON value as the exchange stores it, byte for byte."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def sha256_of(content: bytes) -> str:
    """Return the digest by which contents are compared."""
    return hashlib.sha256(content).hexdigest()


class File:
    """A message that was handed out. Large content is fetched when it is first used."""

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
                raise ChecksumMismatch(f"{self.name} differs from what was stored")
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


@dataclass
class Reply:
    """A reply, kept until the block ends."""

    name: str
    recipient: str
    content: bytes
    body: Any
    media_type: str | None
    reply_to: str | None
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.sha256 = sha256_of(self.content)

    @property
    def is_large(self) -> bool:
        """Whether it is uploaded before `prepare` names it."""
        return len(self.content) > MAX_INLINE_BYTES

    def as_document(self) -> dict[str, Any]:
        """Return the reply as part of the call `prepare`."""
        # The digest verifies content in the request, or identifies content that was uploaded.
        document = {"name": self.name, "recipient": self.recipient, "sha256": self.sha256}
        if self.reply_to is not None:
            document["reply_to"] = self.reply_to
        if not self.is_large:
            content = None if self.media_type is None else self.content
            document.update(_content(self.body, content, self.media_type))
        return document


def _content(body: Any, content: bytes | None, media_type: str | None) -> dict[str, Any]:
    """Return the content of a message or a reply as a call carries it."""
    if content is None:
        return {"body": body}
    encoded = base64.b64encode(content).decode("ascii")
    return {"content_base64": encoded, "media_type": media_type}


class Work:
    """The files of one process and the replies to them. False when there is nothing to do.

    `status` is STARTED, IDLE (nothing waits), BUSY (another instance has a process) or INFLIGHT (an
    earlier transaction on this database has not ended yet).
    """

    def __init__(
        self, answer: dict[str, Any], fetch: Callable[[str], bytes], has_marker: bool
    ) -> None:
        process = answer.get("process") or {}
        self.status = str(answer["status"])
        self.answer = answer
        self.id = str(process.get("id", ""))
        self.database = str(process.get("database", ""))
        self.files = [File(facts, fetch) for facts in process.get("files", ())]
        self.replies: list[Reply] = []
        self.has_marker = has_marker
        self.is_confirmed = False
        self.is_cancelled = False
        # The name of the block's transaction in the ERP's database.
        self.block = "block-" + uuid.uuid4().hex
        self._results: dict[str, dict[str, Any]] = {}

    def __bool__(self) -> bool:
        return self.status == "STARTED"

    @property
    def retry_after(self) -> float:
        """Seconds after which to call again."""
        return float(self.answer.get("retry_after") or 0.0)

    @property
    def lease_seconds(self) -> float:
        """Seconds after which the exchange cancels a process that is not renewed."""
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
        """Add a reply, visible to its recipient if and only if the block commits.

        `body` is JSON; `content` is bytes of a `media_type`. Nothing is sent before the block ends.
        """
        if content is None:
            media_type, content = None, stored_json(body)
        else:
            media_type = media_type or MEDIA_TYPE_DEFAULT
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
        """Report that a file cannot be processed: it is parked with the reason."""
        self._results[file.name] = {"status": "INCORRECT", "error": error}

    def as_document(self) -> dict[str, Any]:
        """Return the body of the call `prepare`."""
        replies = [reply.as_document() for reply in self.replies]
        return {"replies": replies, "results": self._results}


def _moment(text: str) -> float:
    """Parse an ISO timestamp; Python 3.8 accepts neither Z nor five digits of a second."""
    padded = re.sub(r"\.(\d+)", lambda found: f".{found.group(1):0<6.6}", text)
    try:
        return datetime.fromisoformat(padded.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise NotAnswered(f"invalid timestamp: {text!r}") from None


TABLE = (
    "create table exchange_marker (process_id varchar(64) not null primary key,"
    " database_id varchar(64) not null, outcome varchar(10) not null, marker_seq bigint,"
    " written_at varchar(32) not null, is_acked smallint default 0 not null)"
)
INDEX = "create index exchange_marker_seq on exchange_marker (database_id, marker_seq)"
HIGHEST = "select max(marker_seq) from exchange_marker where database_id = ?"
INSERT = (
    "insert into exchange_marker"
    " (process_id, database_id, outcome, marker_seq, written_at, is_acked) values "
)


class _Session:
    """A DB-API connection of the ERP's database; `?` stands for a parameter.

    Each engine adds these operations:

    is_idle()            whether no transaction is open
    table_query          finds a row if the marker table exists
    kind_of(error)       what the error of an insert means: exists, ended, locked or other
    begin(purpose)       begin a transaction to `work`, `read` only, or `probe` with a short wait
    guard(block, …)      tag the transaction, so that its outcome can be found later; repeatable
    is_same(block)       whether the transaction is the tagged one; raises if it has failed
    open_flag            expression with one parameter, the block: 0 in its transaction, else null
    was_committed(block) in a later transaction: whether the tagged one committed; None: unknown
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def unguard(self, block: str) -> None:
        """Remove the tag of the transaction."""

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        """Run a statement and return its rows."""
        cursor = self.cursor()
        try:
            cursor.execute(statement, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    @staticmethod
    def _releases(execute: Callable[[str], Any]) -> bool:
        """Whether the savepoint exists: it ends with its transaction."""
        with _Logged("the block's savepoint is gone"):
            execute("release savepoint exchange_block")
            return True
        return False

    def cursor(self) -> Any:
        """Open a cursor whose rows are tuples, whatever row factory the program uses."""
        return self.connection.cursor()

    def commit(self) -> Any:
        """Commit."""
        self.connection.commit()

    def rollback(self) -> Any:
        """Roll back."""
        self.connection.rollback()


class _Sqlite(_Session):
    table_query = "select 1 from sqlite_master where name = 'exchange_marker'"
    open_flag = "(select 0 from exchange_block where id = ?)"

    def is_idle(self) -> bool:
        # With autocommit=False (Python 3.12) the driver always keeps a transaction open.
        return self._is_implicit or not self.connection.in_transaction

    @property
    def _is_implicit(self) -> bool:
        return getattr(self.connection, "autocommit", None) is False

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
            # A transaction that will write takes its lock first: upgrading a read lock later may
            # be refused. The connection's own timeout bounds the wait, in a probe too.
            self.execute("begin" if purpose == "read" else "begin immediate")

    def guard(self, block: str, has_marker: bool) -> None:  # noqa: ARG002
        # A temporary table belongs to the connection and is still transactional.
        self.execute("create temp table if not exists exchange_block (id text)")
        self.execute("insert into exchange_block values (?)", (block,))
        self.execute("savepoint exchange_block")

    def is_same(self, block: str) -> bool:  # noqa: ARG002
        return self._releases(self.execute)

    def was_committed(self, block: str) -> bool | None:
        table = self.execute("select 1 from sqlite_temp_master where name = 'exchange_block'")
        found = table and self.execute("select 1 from exchange_block where id = ?", (block,))
        return bool(found)

    def unguard(self, block: str) -> None:  # noqa: ARG002
        self.execute("delete from exchange_block")


KINDS_POSTGRES = {
    "23505": "exists",
    "23502": "ended",
    **dict.fromkeys(("55P03", "57014", "40001", "40P01"), "locked"),
}


class _Postgres(_Session):
    """A connection of psycopg. No tag has to be removed: the next transaction overwrites it."""

    table_query = "select 1 where to_regclass('exchange_marker') is not null"
    open_flag = "case current_setting('postroad.block_open', true) when ? then 0 end"
    status: str | None = None

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        rows = importlib.import_module("psycopg.rows")
        with self.connection.cursor(row_factory=rows.tuple_row) as cursor:
            cursor.execute(statement.replace("?", "%s"), parameters or None)
            self.status = cursor.statusmessage
            return list(cursor.fetchall()) if cursor.description else []

    def is_idle(self) -> bool:
        return int(self.connection.info.transaction_status) == 0

    def kind_of(self, error: Exception) -> str:
        return KINDS_POSTGRES.get(getattr(error, "sqlstate", None) or "", "other")

    def begin(self, purpose: str = "work") -> None:
        if self.connection.autocommit:
            self.execute("begin")
        if purpose == "probe":
            self.execute("set local lock_timeout = '500ms'")

    def guard(self, block: str, has_marker: bool) -> None:  # noqa: ARG002
        self.execute(f"set local postroad.block_open = '{block}'")
        self.execute(f"set postroad.block_committed = '{block}'")

    def is_same(self, block: str) -> bool:
        return self._has_setting("open", block)

    def was_committed(self, block: str) -> bool | None:
        return self._has_setting("committed", block)

    def _has_setting(self, name: str, block: str) -> bool:
        query = f"select 1 where current_setting('postroad.block_{name}', true) = ?"
        return bool(self.execute(query, (block,)))

    def commit(self) -> None:
        self.execute("commit")
        # COMMIT rolls back a transaction that has failed.
        if self.status != "COMMIT":
            raise TransactionEnded("the database rolled back instead of committing")

    def rollback(self) -> None:
        self.execute("rollback")


# isc_not_valid: a value violates its column's constraint, here NOT NULL.
NULL_FIREBIRD = 335544347


class _Firebird(_Session):
    table_query = "select 1 from rdb$relations where rdb$relation_name = 'EXCHANGE_MARKER'"
    open_flag = "(select 0 from exchange_marker where process_id = ?)"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._probe: Any = None
        self._has_row = False

    def is_idle(self) -> bool:
        return not self.connection.main_transaction.is_active()

    def kind_of(self, error: Exception) -> str:
        # With NO WAIT the key of an uncommitted row counts as a violation, too.
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
            statement = INSERT.replace("insert", "update or insert") + "(?, '', 'OPEN', null, ?, 1)"
            self.execute(statement, (block, _now()))
        self.connection.execute_immediate("savepoint exchange_block")

    def is_same(self, block: str) -> bool:  # noqa: ARG002
        return self._releases(self.connection.execute_immediate)

    def was_committed(self, block: str) -> bool | None:
        # Without the marker table a commit leaves no trace that could be checked.
        if not self._has_row:
            self.execute("select 1 from rdb$database")
            return None
        return bool(self.execute("select 1 from exchange_marker where process_id = ?", (block,)))

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
        with contextlib.closing(probe) if probe else contextlib.nullcontext(self.connection) as one:
            getattr(one, verb)()


SESSIONS = {"sqlite3": _Sqlite, "psycopg": _Postgres, "firebird": _Firebird}


def session_of(connection: Any) -> Any:
    """Return the session for a connection, by its driver. Raises ConnectionUnsupported."""
    if isinstance(connection, _Session):
        return connection
    for kind in type(connection).__mro__:
        found = SESSIONS.get(kind.__module__.partition(".")[0])
        if found is not None:
            return found(connection)
    raise ConnectionUnsupported(
        f"{type(connection)} is not a connection of psycopg, sqlite3 or firebird-driver"
    )


# The marker table. `write_marker` and `clean` belong to the open transaction; the other functions
# have transactions of their own.


def _now(days: float = 0.0) -> str:
    return (datetime.now(timezone.utc) + timedelta(days)).isoformat(timespec="seconds")


def _has_table(session: Any) -> bool:
    session.begin("read")
    is_there = bool(session.execute(session.table_query))
    session.rollback()
    return is_there


def ensure_table(session: Any, may_create: bool) -> None:
    """Ensure that the marker table exists."""
    if _has_table(session):
        return
    if not may_create:
        raise ExchangeClientError("the table exchange_marker is missing")
    try:
        for statement in (TABLE, INDEX):
            session.begin()
            session.execute(statement)
            session.commit()
    except Exception:
        session.rollback()
        # Another instance may have created it at the same time.
        if not _has_table(session):
            raise


def write_marker(session: Any, process: str, database: str, block: str) -> None:
    """Write the marker of a process, in the block's transaction and in no other.

    If that transaction was ended, for instance by a pool that took its connection back during
    `prepare`, the insert violates the column's not-null constraint.
    """
    ((highest,),) = session.execute(HIGHEST, (database,))
    values = f"(?, ?, 'COMMITTED', ?, ?, {session.open_flag})"
    session.execute(INSERT + values, (process, database, (highest or 0) + 1, _now(), block))


def settle_process(session: Any, process: str, database: str) -> str:
    """Settle a process by its marker: return COMMITTED, ABORTED or INFLIGHT."""
    try:
        session.begin("probe")
        values = "(?, ?, 'ABORTED', null, ?, 1)"
        session.execute(INSERT + values, (process, database, _now()))
        session.commit()
    except Exception as error:
        session.rollback()
        kind = session.kind_of(error)
        if kind == "other":
            raise
        if kind == "locked":
            return INFLIGHT
    else:
        return ABORTED
    session.begin("probe")
    query = "select outcome from exchange_marker where process_id = ?"
    rows = session.execute(query, (process,))
    session.rollback()
    # A key whose row is not visible belongs to a transaction that has not committed yet.
    return str(rows[0][0]) if rows else INFLIGHT


def markers(session: Any, database: str) -> tuple[int, dict[str, str]]:
    """Return the highest marker of a database, and the outcomes not acknowledged yet."""
    session.begin("read")
    ((highest,),) = session.execute(HIGHEST, (database,))
    unacked = session.execute(
        "select process_id, outcome from exchange_marker where database_id = ? and is_acked = 0",
        (database,),
    )
    session.rollback()
    return highest or 0, {row[0]: row[1] for row in unacked}


def _acknowledge(session: Any, processes: Iterable[str]) -> None:
    """Record that the exchange has these outcomes. Failing is harmless: they are reported again."""
    statement = "update exchange_marker set is_acked = 1 where process_id = ? and is_acked = 0"
    with _Logged("markers not acknowledged"):
        session.begin("probe")
        for process in processes:
            session.execute(statement, (process,))
        if random.randrange(CLEAN_UP_ONE_IN) == 0:  # noqa: S311 - not a secret
            clean(session, MARKERS_KEPT_DAYS)
        session.commit()
        return
    session.rollback()


def clean(session: Any, days: float) -> None:
    """Delete old acknowledged markers; the highest of a database stays."""
    statement = (
        "delete from exchange_marker where is_acked = 1 and written_at < ? and (marker_seq is null"
        " or marker_seq < (select max(m.marker_seq) from exchange_marker m"
        " where m.database_id = exchange_marker.database_id))"
    )
    session.execute(statement, (_now(-days),))


class Exchange:
    """The exchange over HTTP. Safe to share between threads.

    `timeout` limits the wait for one answer, `patience` the time for all attempts of a call, both
    in seconds. `context` is an `ssl.SSLContext` for servers with certificates of their own.
    """

    # Whether links are followed before a file is returned, and not when its content is first used.
    fetches_all = False

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
        id = id or uuid.uuid4().hex
        document = _given(id=id, database=database, recipient=recipient, order=order)
        if messages is not None:
            stored = stored_json([{"id": one["id"], "body": one["body"]} for one in messages])
            document["messages"] = messages
        else:
            stored = stored_json(body) if content is None else content
            document.update(_content(body, content, media_type or MEDIA_TYPE_DEFAULT))
        answer = self._call("POST", "/messages", document, ("OK",))
        return _checked(answer, f"message {id}", sha256_of(stored))

    def status(self, id: str) -> dict[str, Any]:
        """Return the state of a message that this client sent: `state`, `error` and more."""
        return self._call("GET", f"/messages/{_quoted(id)}/status")

    def receive(self, limit: int = 100, max_bytes: int | None = None) -> list[File]:
        """Return the replies addressed to this client, oldest first; `ack` each when it is safe."""
        query = urllib.parse.urlencode(_given(limit=limit, max_bytes=max_bytes))
        answer = self._call("GET", "/messages?" + query)
        files = [File(facts, self.fetch) for facts in answer["items"]]
        for file in files if self.fetches_all else ():
            _ = file.content
        return files

    def ack(self, message: File | str) -> None:
        """Acknowledge a reply; it is not received again. Repeatable."""
        name = message.id if isinstance(message, File) else message
        self._call("DELETE", "/messages/" + _quoted(name))

    def fetch(self, href: str) -> bytes:
        """Return the bytes behind a link of the exchange."""
        url = urllib.parse.urljoin(self.url + "/", href)
        content: bytes = self._repeat(lambda: self._once("GET", url, None, {}))
        return content

    # The calls of the protocol, one by one. `process` makes them in the right order.

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        """API_1: start a process."""
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
        """API_2: name the files that will be processed; the others are handed out again later."""
        names = [file.name if isinstance(file, File) else file for file in files]
        document = _given(files=names, reason=reason, delay=delay_seconds)
        return self._call("PUT", self._path(process, "files"), document, VERDICTS)

    def upload(self, process: str, reply: Reply) -> dict[str, Any]:
        """Upload a large reply before `prepare` names it."""
        query = urllib.parse.urlencode({"recipient": reply.recipient})
        path = self._path(process, f"replies/{_quoted(reply.name)}?{query}")
        headers = {
            "Content-Type": reply.media_type or "application/json",
            "X-Content-SHA256": reply.sha256,
        }
        answer = self._call("PUT", path, None, VERDICTS, content=reply.content, headers=headers)
        return _checked(answer, reply.name, reply.sha256)

    def prepare(self, process: str, document: dict[str, Any]) -> dict[str, Any]:
        """API_3: send replies and results; after OK the transaction may commit."""
        return self._call("POST", self._path(process, "prepare"), document, VERDICTS)

    def commit(self, process: str) -> dict[str, Any]:
        """API_4: the transaction was committed."""
        return self._call("POST", self._path(process, "commit"), {}, ("OK",))

    def abort(self, process: str, error: str = "") -> dict[str, Any]:
        """API_5: the transaction was rolled back."""
        return self._call("POST", self._path(process, "abort"), {"error": error[:1000]}, ("OK",))

    def fail(self, process: str, error: str = "") -> dict[str, Any]:
        """API_6: processing failed."""
        return self._call("POST", self._path(process, "fail"), {"error": error[:1000]}, ("OK",))

    def renew(self, process: str, patience: float = 0.0) -> dict[str, Any]:
        """Extend the lease of a process."""
        return self._call("POST", self._path(process, "renew"), {}, VERDICTS, patience)

    def resolve(self, process: str, outcome: str) -> dict[str, Any]:
        """Report the outcome of a process: COMMITTED, ABORTED or INFLIGHT."""
        return self._call("POST", self._path(process, "resolve"), {"outcome": outcome})

    def quietly(self, call: str, process: str, error: str) -> None:
        """Report a failure if the exchange answers soon; otherwise the process times out."""
        path = self._path(process, call)
        with _Logged(f"process {process}: {call} was not reported", logging.WARNING):
            self._call("POST", path, {"error": error[:1000]}, patience=self.patience / 4)

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
        """Return a block that processes the files of one process in one transaction.

        Without a marker (`has_marker=False`, for a database whose schema must not change) a process
        in doubt waits for an administrator. `may_create` allows creating the marker table.

        The block's `with` raises what the block raised, else ProcessCancelled (rolled back, others
        have the files), TransactionEnded, OutcomeUnknown, NotAnswered, Refused, DatabaseRestored,
        ConnectionBusy.
        """
        request = _given(
            recipient=recipient, max_files=max_files, max_bytes=max_bytes, senders=senders
        )
        may = may_create if has_marker else None
        return Process(self, database, session_of(connection), request, may)

    def settle(self, database: str, connection: Any, processes: Iterable[str]) -> dict[str, str]:
        """Settle processes by their markers and report them; returns their outcomes."""
        outcomes: dict[str, str] = {}
        session = session_of(connection)
        for process in processes:
            outcomes[process] = settle_process(session, process, database)
            self.resolve(process, outcomes[process])
        return outcomes

    @staticmethod
    def _path(process: str, what: str) -> str:
        return f"/processes/{_quoted(process)}/{what}"

    def _call(
        self,
        method: str,
        path: str,
        document: dict[str, Any] | None = None,
        statuses: tuple[str, ...] = (),
        patience: float | None = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        if document is not None:
            content, headers = json.dumps(document).encode("utf-8"), JSON_HEADERS

        def read() -> dict[str, Any]:
            received = self._once(method, self.url + path, content, headers or {})
            try:
                answer = json.loads(received.decode("utf-8"))
            except ValueError:
                raise NotAnswered("the answer is not JSON") from None
            # An answer is one of a closed set; anything else counts as none.
            if not isinstance(answer, dict) or (statuses and answer.get("status") not in statuses):
                raise NotAnswered("the answer is not valid")
            return answer

        answer: dict[str, Any] = self._repeat(read, patience)
        return answer

    def _repeat(self, call: Callable[[], Any], patience: float | None = None) -> Any:
        """Repeat a call until it is answered or `patience` has passed."""
        begun = time.monotonic()
        for number in itertools.count():
            try:
                return call()
            except NotAnswered as failure:  # noqa: PERF203 - the purpose of the loop
                pause = min(FIRST_PAUSE_SECONDS * 2.0**number, MAX_PAUSE_SECONDS)
                pause *= 0.5 + random.random() / 2  # noqa: S311 - not a secret
                pause = max(pause, min(failure.retry_after or 0.0, MAX_PAUSE_SECONDS))
                # Read each time: cancelling a call sets it to 0.
                limit = self.patience if patience is None else patience
                if time.monotonic() + pause > begun + limit:
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
                # An answer that was cut off within its headers would be mistaken for a short one.
                if response.length is None and not getattr(response, "chunked", False):
                    raise NotAnswered("the answer was cut")
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"{method} {url}: {error}") from error


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _checked(answer: dict[str, Any], name: str, sha256: str) -> dict[str, Any]:
    if answer.get("sha256") not in (None, sha256):
        raise ChecksumMismatch(f"{name} arrived with another content")
    return answer


def _refusal(error: urllib.error.HTTPError) -> ExchangeClientError:
    problem: Any = None
    with contextlib.suppress(ValueError, OSError, http.client.HTTPException):
        problem = json.loads(error.read().decode("utf-8"))
    if not isinstance(problem, dict):
        problem = {}
    reason = problem.get("detail") or problem.get("title") or error.reason
    message = f"{error.code} {reason}"
    if error.code >= 500 or error.code in (408, 425, 429):
        after = error.headers.get("Retry-After", "")
        return NotAnswered(message, retry_after=float(after) if after.isdigit() else None)
    return Refused(message, status=error.code, problem=problem)


@dataclass
class Process:
    """The block of `Exchange.process`. `may_create` is None where there is no marker."""

    exchange: Any
    database: str
    session: Any
    request: dict[str, Any]
    may_create: bool | None
    _work: Any = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Work:
        answer = self._start()
        self._work = work = Work(answer, self.exchange.fetch, self.may_create is not None)
        try:
            if work:
                threading.Thread(target=self._keep, daemon=True).start()
            for file in work.files:
                if self.exchange.fetches_all or "href" not in file.facts:
                    # Reading it compares it with its digest.
                    _ = file.content
            self._begin()
        except BaseException as error:
            self._ended.set()
            if work:
                self.exchange.quietly("fail", work.id, str(error))
            raise
        return work

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if not self._work:
                (self.session.rollback if kind else self.session.commit)()
            elif kind is not None:
                self._fail(f"{kind.__name__}: {error}")
            elif self._work.is_cancelled:
                self.session.rollback()
                raise ProcessCancelled(f"process {self._work.id} was cancelled")
            else:
                self._finish()
        finally:
            self._ended.set()

    def _keep(self) -> None:
        """Extend the lease until the block ends, or note that the process is cancelled."""
        work = self._work
        while not work.is_cancelled and not self._ended.wait(work.lease_seconds / 3):
            try:
                work.is_cancelled = self.exchange.renew(work.id)["status"] == "CANCELLED"
            except Refused:  # noqa: PERF203 - the next call may be answered
                work.is_cancelled = True
            except ExchangeClientError as failure:
                logger.debug("process %s was not renewed: %s", work.id, failure)

    def _begin(self) -> None:
        self.session.begin()
        if self._work:
            self.session.guard(self._work.block, self._work.has_marker)

    def _start(self) -> dict[str, Any]:
        """Start a process, settling those in doubt first. Returns the answer."""
        session, database = self.session, self.database
        if not session.is_idle():
            raise ConnectionBusy(
                "the connection has an open transaction; commit or roll back first"
            )
        request = dict(self.request, database=database, attempt=uuid.uuid4().hex)
        resolved: dict[str, str] = {}
        if self.may_create is not None:
            ensure_table(session, self.may_create)
            request["marker_seq"], resolved = markers(session, database)
        reported = list(resolved)
        for number in range(MAX_SETTLE_ROUNDS):
            if resolved:
                request["resolved"] = resolved
            answer: dict[str, Any] = self.exchange.start(request)
            status = answer["status"]
            # BUSY: another instance's process may still be ready, and is not settled by this.
            if reported and status != "BUSY":
                _acknowledge(session, reported)
                reported = []
            if status == "STARTED" and answer["process"]["state"] != "STARTED":
                # The answer came so late that the process has already ended.
                request["attempt"] = uuid.uuid4().hex
            elif status == "RESTORED":
                if self.may_create is not None:
                    # Another instance may have committed between reading the marker and the call.
                    before = request["marker_seq"]
                    request["marker_seq"], resolved = markers(session, database)
                    reported = list(resolved)
                    if request["marker_seq"] > before:
                        continue
                last, got = answer.get("last"), answer.get("got")
                raise DatabaseRestored(
                    f"database {database} was restored from a backup: its last marker is {got},"
                    f" and {last} was committed",
                    last=last,
                    got=got,
                )
            elif status != "RESOLVE":
                return answer
            elif self.may_create is None:
                return dict(answer, status="INFLIGHT", retry_after=answer.get("retry_after") or 5)
            else:
                resolved = {
                    one: settle_process(session, one, database) for one in answer["processes"]
                }
                if INFLIGHT in resolved.values():
                    if number >= 2:
                        return dict(answer, status="INFLIGHT", retry_after=2)
                    time.sleep(FIRST_PAUSE_SECONDS * 2 ** (number + 1))
        raise NotAnswered(f"the exchange keeps asking about {sorted(resolved)}")

    def _finish(self) -> None:
        """End a block that did not raise: prepare, marker, COMMIT, confirm."""
        fate = self._fate()
        if fate == COMMITTED:
            fate = PARTLY
            with _Logged(f"process {self._work.id}: the rest was not committed"):
                if not self.session.is_idle():
                    self.session.commit()
                self._begin()
                fate = COMMITTED
        if fate == ABORTED:
            reason = "its transaction failed or was rolled back inside the block"
            self._undo(reason, "fail")
            raise self._transaction_ended(reason)
        if fate == PARTLY:
            reason = "the block ended its transaction itself, and its work may be done in part"
            self._park(reason)
            raise self._transaction_ended(reason)
        self._confirm()
        if fate == COMMITTED:
            raise self._transaction_ended(
                "the block committed its transaction itself; it is confirmed now, and would have"
                " been done twice had this program died in between"
            )

    def _fail(self, error: str) -> None:
        """End a block that raised: roll back and report it, unless it has committed itself."""
        if self._fate() in (OPEN, ABORTED):
            self._undo(error, "fail")
        else:
            self._park(f"the block ended its transaction itself, then failed: {error}")

    def _fate(self) -> str:
        """Return the state of the block's transaction: OPEN, COMMITTED, ABORTED or PARTLY."""
        work, session = self._work, self.session
        has_failed = True
        with _Logged(f"process {work.id}: its transaction has failed"):
            if session.is_same(work.block):
                return OPEN
            has_failed = False
        with _Logged(f"process {work.id}: the connection is gone"):
            if has_failed:
                session.rollback()
            was_committed = session.was_committed(work.block)
            if was_committed and not has_failed:
                return COMMITTED
            return ABORTED if was_committed is False else PARTLY
        # A lost connection has rolled back.
        return ABORTED

    def _park(self, reason: str) -> None:
        """Park the files of a block that has committed, or may have committed, a part of its work.

        Handing them out again would do that part twice.
        """
        work = self._work
        work.replies.clear()
        for file in work.files:
            work.reject(file, reason[:1000])
        # Otherwise the process is in doubt.
        with _Logged(f"process {work.id}: its files were not parked", logging.ERROR):
            self.session.rollback()
            self._begin()
            self._confirm()

    def _confirm(self) -> None:
        """Prepare, marker, COMMIT, confirm, in the open transaction."""
        work, session, exchange = self._work, self.session, self.exchange
        try:
            for reply in work.replies:
                if reply.is_large:
                    exchange.upload(work.id, reply)
            answer = exchange.prepare(work.id, work.as_document())
        except Exception as error:
            # The process may be prepared; the transaction is certainly rolled back.
            self._undo(f"prepare: {error}")
            raise
        if answer["status"] != "OK":
            session.rollback()
            raise ProcessCancelled(f"process {work.id} was cancelled")
        try:
            if work.has_marker:
                write_marker(session, work.id, self.database, work.block)
            session.unguard(work.block)
        except Exception as error:
            # COMMIT was not sent, so nothing is committed.
            kind = session.kind_of(error)
            self._undo(str(error))
            if kind == "exists":
                raise ProcessCancelled(f"process {work.id} was settled as aborted") from error
            if kind == "ended":
                reason = "its transaction was ended while the block was being left"
                raise self._transaction_ended(reason) from error
            raise
        try:
            session.commit()
        except TransactionEnded as error:
            self._undo(str(error))
            raise
        except Exception as error:
            outcome = self._outcome()
            if outcome == ABORTED:
                exchange.quietly("abort", work.id, str(error))
                raise
            if outcome != COMMITTED:
                raise OutcomeUnknown(
                    f"the outcome of process {work.id} is unknown: {error}"
                ) from error
        try:
            exchange.commit(work.id)
        except NotAnswered as error:
            # The marker has the outcome, and the next process reports it.
            logger.warning("process %s is committed and not confirmed yet: %s", work.id, error)
            return
        except Refused as error:
            raise Settled(f"process {work.id} was committed, but: {error}") from error
        work.is_confirmed = True
        if work.has_marker:
            _acknowledge(session, [work.id])

    def _outcome(self) -> str | None:
        """Return the outcome after a failed COMMIT; None when the connection is lost."""
        work = self._work
        with _Logged(f"process {work.id} is in doubt", logging.WARNING):
            self.session.rollback()
            return settle_process(self.session, work.id, self.database) if work.has_marker else None
        return None

    def _undo(self, error: str, call: str = "abort") -> None:
        """Roll back and report it; if the report fails, the process times out."""
        with _Logged(f"process {self._work.id}: no rollback"):
            self.session.rollback()
        self.exchange.quietly(call, self._work.id, error)

    def _transaction_ended(self, reason: str) -> TransactionEnded:
        return TransactionEnded(f"process {self._work.id}: {reason}")
