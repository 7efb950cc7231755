"""What an operator may do. Each takes a connection and works in the caller's transaction.

Rows change at once; files follow as soon as the server notices, at its next sweep at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from postroad.exchange.errors import (
    ContentInvalid,
    MessageConflict,
    MessageNotFound,
    OutcomeNeeded,
    ProcessContradiction,
    ProcessNotFound,
    translate,
)
from postroad.exchange.names import is_id
from postroad.web.tokens import hash_token, new_token

__all__ = [
    "NewClient",
    "add_client",
    "add_database",
    "add_route",
    "change_client",
    "release",
    "remove_client",
    "remove_route",
    "renew_client",
    "replay",
    "requeue",
    "requeue_by_file",
    "resolve",
    "restored_in",
]

ADD_CLIENT = (
    "select exchange.add_client(p_id => %s, p_secret_hash => %s, p_is_admin => %s,"
    " p_databases => %s::text[], p_recipients => %s::text[], p_may_send => %s, p_may_take => %s)"
)
CHANGE_CLIENT = (
    "select exchange.change_client(p_id => %s, p_is_admin => %s, p_databases => %s::text[],"
    " p_has_all_databases => %s, p_recipients => %s::text[], p_may_send => %s, p_may_take => %s)"
)
RENEW_CLIENT = "select exchange.renew_client(p_id => %s, p_secret_hash => %s)"
REMOVE_CLIENT = "select exchange.remove_client(p_id => %s)"
ADD_DATABASE = (
    "select (d).id, (d).resolution, (d).policy"
    " from exchange.add_database(p_id => %s, p_resolution => %s, p_policy => %s) d"
)
END = (
    "select exchange.end_process(p_epoch => null, p_now => null, p_call => %s, p_client => null,"
    " p_process => %s, p_outcome => %s, p_error => %s, p_actor => %s) as answer"
)
REQUEUE = (
    "select exchange.requeue(p_epoch => null, p_id => %s, p_sender => %s, p_database => %s,"
    " p_recipient => %s) as answer"
)
REQUEUE_BY_FILE = "select exchange.requeue_by_file(p_epoch => null, p_database => %s) as count"
RESTORED_IN = "select exchange.restored_in(p_database => %s) as seconds"
REPLAY = (
    "select exchange.replay(p_epoch => null, p_database => %s, p_from => %s, p_is_skipped => %s)"
    " as count"
)
ADD_ROUTE = (
    "select exchange.add_route(p_id => %s, p_direction => %s, p_queue => %s, p_database => %s,"
    " p_recipient => %s)"
)
REMOVE_ROUTE = "select exchange.remove_route(p_id => %s) as is_removed"


@dataclass(frozen=True, slots=True)
class NewClient:
    """A client and its secret, which is shown once and stored hashed."""

    id: str
    token: str
    is_admin: bool
    databases: list[str] | None
    recipients: list[str]
    may_send: bool
    may_take: bool


def add_client(
    connection: Connection[Any],
    id_: str,
    *,
    is_admin: bool = False,
    databases: Sequence[str] | None = (),
    recipients: Sequence[str] = (),
    may_send: bool = True,
    may_take: bool = True,
) -> NewClient:
    """Add a client and return its token. Raises ClientExists, ContentInvalid.

    It may send to and take from the `databases`; None: from all. Without one it only receives
    replies. `recipients` are others for whom it may take.
    """
    for name in (id_, *(databases or ()), *recipients):
        _refuse_no_id(name)
    token = new_token("px")
    rights = (None if databases is None else list(databases), list(recipients), may_send, may_take)
    _run(connection, ADD_CLIENT, (id_, hash_token(token), is_admin, *rights))
    return NewClient(id_, token, is_admin, *rights)


def change_client(
    connection: Connection[Any],
    id_: str,
    *,
    is_admin: bool | None = None,
    databases: Sequence[str] | EllipsisType | None = ...,
    recipients: Sequence[str] | None = None,
    may_send: bool | None = None,
    may_take: bool | None = None,
) -> None:
    """Change the rights that are given; a server applies it within two seconds.

    `databases` None: all, `...`: as they are. Raises ClientNotFound, ContentInvalid.
    """
    names = list(databases) if isinstance(databases, Sequence) else None
    for name in (*(names or ()), *(recipients or ())):
        _refuse_no_id(name)
    others = None if recipients is None else list(recipients)
    given = (id_, is_admin, names, databases is None, others, may_send, may_take)
    _run(connection, CHANGE_CLIENT, given)


def renew_client(connection: Connection[Any], id_: str) -> str:
    """Give a client a new token; the old one ends within two seconds. Raises ClientNotFound."""
    token = new_token("px")
    _run(connection, RENEW_CLIENT, (id_, hash_token(token)))
    return token


def remove_client(connection: Connection[Any], id_: str) -> None:
    """Forget a client; its messages stay. Raises ClientNotFound."""
    _run(connection, REMOVE_CLIENT, (id_,))


def add_database(
    connection: Connection[Any],
    id_: str,
    *,
    resolution: str | None = None,
    policy: str | None = None,
) -> dict[str, Any]:
    """Make a database known, or change how it is resolved. Raises DatabaseByCase."""
    _refuse_no_id(id_)
    return _run(connection, ADD_DATABASE, (id_, resolution, policy))[0]


def resolve(
    connection: Connection[Any], process: str, outcome: str, *, by: str | None = None
) -> dict[str, Any]:
    """Settle a process in doubt; its history names `by`.

    Raises ProcessNotFound, ProcessContradiction.
    """
    return _end(connection, "resolve", process, outcome, "settled by an administrator", by)


def release(
    connection: Connection[Any], process: str, outcome: str | None = None, *, by: str | None = None
) -> dict[str, Any]:
    """End a process by hand; its history names `by`.

    Raises ProcessNotFound, ProcessContradiction, OutcomeNeeded.
    """
    return _end(connection, "release", process, outcome, "released by an administrator", by)


def requeue(
    connection: Connection[Any],
    id_: str,
    *,
    sender: str | None = None,
    database: str | None = None,
    recipient: str | None = None,
) -> dict[str, Any]:
    """Hand a parked or deferred message out again. Raises MessageNotFound, MessageConflict."""
    given = (id_, sender, database, recipient)
    answer: dict[str, Any] = _run(connection, REQUEUE, given)[0]["answer"]
    match answer["status"]:
        case "MISSING":
            raise MessageNotFound(
                f"there is no message {id_}", hint="look at: postroad exchange messages"
            )
        case "AMBIGUOUS":
            raise MessageConflict(
                f"several messages have the id {id_}",
                hint="say which one with --sender, --database or --recipient",
            )
        case "CONFLICT":
            raise MessageConflict(
                f"message {id_} is {answer['state']}: only a parked or deferred one comes again",
                hint="what a restored database lost comes back with: postroad exchange replay",
            )
    return answer


def requeue_by_file(connection: Connection[Any], *, database: str | None = None) -> int:
    """Put back everything that was parked because its file was missing or wrong; return how many.

    The server quarantines again what it still does not find.
    """
    count: int = _run(connection, REQUEUE_BY_FILE, (database,))[0]["count"]
    return count


def replay(
    connection: Connection[Any],
    database: str,
    *,
    from_seq: int | None = None,
    is_skipped: bool = False,
) -> int:
    """Hand out again what a restored database lost; returns how many messages.

    `is_skipped` accepts the loss instead. That a database was restored counts a few seconds after
    it was reported, see `restored_in`. Raises DatabaseNotFound, NotRestored.
    """
    count: int = _run(connection, REPLAY, (database, from_seq, is_skipped))[0]["count"]
    return count


def restored_in(connection: Connection[Any], database: str) -> float | None:
    """Return after how many seconds a reported restore counts; None: none was reported."""
    seconds: float | None = _run(connection, RESTORED_IN, (database,))[0]["seconds"]
    return seconds


def add_route(
    connection: Connection[Any],
    id_: str,
    direction: str,
    queue: str,
    *,
    database: str | None = None,
    recipient: str | None = None,
) -> None:
    """Lay a way between the bus and the mailboxes. Raises RouteQueueMissing."""
    for name in (id_, database, recipient):
        if name is not None:
            _refuse_no_id(name)
    _run(connection, ADD_ROUTE, (id_, direction, queue, database, recipient))


def remove_route(connection: Connection[Any], id_: str) -> bool:
    """Take a way back; returns whether it was there."""
    return bool(_run(connection, REMOVE_ROUTE, (id_,))[0]["is_removed"])


def _end(
    connection: Connection[Any],
    call: str,
    process: str,
    outcome: str | None,
    error: str,
    by: str | None,
) -> dict[str, Any]:
    given = (call, process, outcome, error, by)
    answer: dict[str, Any] = _run(connection, END, given)[0]["answer"]
    match answer["status"]:
        case "MISSING":
            raise ProcessNotFound(
                f"there is no process {process}", hint="look at: postroad exchange processes"
            )
        case "OUTCOME":
            raise OutcomeNeeded(
                f"process {process} is {answer['state']}: whether it committed must be said",
                hint="give the outcome: COMMITTED or ABORTED",
            )
        case "CONFLICT":
            raise ProcessContradiction(
                f"process {process} is {answer['state']}; that outcome contradicts it"
            )
    return answer


def _run(
    connection: Connection[Any], text: LiteralString, parameters: tuple[Any, ...]
) -> list[dict[str, Any]]:
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []
    except psycopg.Error as failure:
        raise (translate(failure) or failure) from failure


def _refuse_no_id(name: str) -> None:
    if not is_id(name):
        raise ContentInvalid(
            f"{name!r} cannot be an id",
            hint="use up to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
        )
