"""What an operator may do. Each takes a connection and works in the caller's transaction.

Rows change in that transaction; the server moves files afterwards, at its next sweep at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, LiteralString

import psycopg
from psycopg import AsyncConnection
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

Outcome = Literal["COMMITTED", "ABORTED"]

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


async def add_client(
    connection: AsyncConnection[Any],
    id_: str,
    *,
    is_admin: Annotated[bool, "Administrates the exchange."] = False,
    databases: Annotated[Sequence[str] | None, "A database it may use; may be repeated."] = (),
    all_databases: Annotated[bool, "Every database, now and later."] = False,
    recipients: Annotated[Sequence[str], "Others for whom it may take; may be repeated."] = (),
    may_send: Annotated[bool, "May send messages."] = True,
    may_take: Annotated[bool, "May take messages."] = True,
) -> NewClient:
    """Add a client and return its token, which is stored hashed and shown this once.

    Without a database it only receives replies; None as `databases` means all.
    Raises ClientExists, ContentInvalid.

    Example: postroad exchange clients add erp-1 --database sales --json
    """
    if all_databases or databases is None:
        _refuse_both(all_databases, databases)
        databases = None
    for name in (id_, *(databases or ()), *recipients):
        _refuse_no_id(name)
    token = new_token("px")
    rights = (None if databases is None else list(databases), list(recipients), may_send, may_take)
    await _run(connection, ADD_CLIENT, (id_, hash_token(token), is_admin, *rights))
    return NewClient(id_, token, is_admin, *rights)


async def change_client(
    connection: AsyncConnection[Any],
    id_: str,
    *,
    is_admin: Annotated[bool | None, "Administrates the exchange."] = None,
    databases: Annotated[Sequence[str] | None, "A database it may use; may be repeated."] = None,
    all_databases: Annotated[bool, "Every database, now and later."] = False,
    recipients: Annotated[Sequence[str] | None, "Others for whom it may take."] = None,
    may_send: Annotated[bool | None, "May send messages."] = None,
    may_take: Annotated[bool | None, "May take messages."] = None,
) -> None:
    """Change the rights that are given; the token stays. A server applies it within two seconds.

    Raises ClientNotFound, ContentInvalid.

    Example: postroad exchange clients change erp-1 --database sales --no-send
    """
    _refuse_both(all_databases, databases)
    names = None if databases is None else list(databases)
    others = None if recipients is None else list(recipients)
    for name in (*(names or ()), *(others or ())):
        _refuse_no_id(name)
    given = (is_admin, names, all_databases, others, may_send, may_take)
    if given == (None, None, False, None, None, None):
        raise ContentInvalid("no right is given", hint="name a right to change")
    await _run(connection, CHANGE_CLIENT, (id_, *given))


async def renew_client(connection: AsyncConnection[Any], id_: str) -> dict[str, str]:
    """Give a client a new token; the old one ends within two seconds. Raises ClientNotFound.

    Example: postroad exchange clients renew erp-1
    """
    token = new_token("px")
    await _run(connection, RENEW_CLIENT, (id_, hash_token(token)))
    return {"token": token}


async def remove_client(connection: AsyncConnection[Any], id_: str) -> None:
    """Remove a client; its messages stay. Raises ClientNotFound.

    Example: postroad exchange clients remove erp-1
    """
    await _run(connection, REMOVE_CLIENT, (id_,))


async def add_database(
    connection: AsyncConnection[Any],
    id_: str,
    *,
    resolution: Annotated[
        Literal["marker", "manual"] | None,
        "Who resolves a process in doubt: the ERP's marker, or a person. Default marker.",
    ] = None,
    policy: Annotated[
        Literal["go_on", "wait"] | None,
        "Whether messages behind a parked one of the same sender go on or wait.",
    ] = None,
) -> dict[str, Any]:
    """Add a database, or change how it is handled. Raises DatabaseByCase.

    Example: postroad exchange databases add sales --resolution marker
    """
    _refuse_no_id(id_)
    return (await _run(connection, ADD_DATABASE, (id_, resolution, policy)))[0]


async def resolve(
    connection: AsyncConnection[Any], id_: str, outcome: Outcome, *, by: str | None = None
) -> dict[str, Any]:
    """Resolve a process in doubt by hand, after a look into the ERP's database.

    Its history names `by`. Raises ProcessNotFound, ProcessContradiction.

    Example: postroad exchange resolve 7b0c7c1e-… COMMITTED
    """
    return await _end(connection, "resolve", id_, outcome, "settled by an administrator", by)


async def release(
    connection: AsyncConnection[Any],
    id_: str,
    *,
    outcome: Annotated[Outcome | None, "What the ERP did."] = None,
    by: str | None = None,
) -> dict[str, Any]:
    """End a process by hand; one that is ready to commit needs its outcome.

    Its history names `by`. Raises ProcessNotFound, ProcessContradiction, OutcomeNeeded.

    Example: postroad exchange release 7b0c7c1e-…
    """
    return await _end(connection, "release", id_, outcome, "released by an administrator", by)


async def requeue(
    connection: AsyncConnection[Any],
    id_: str | None = None,
    *,
    sender: Annotated[str | None, "Whose message, where several have used the id."] = None,
    database: Annotated[str | None, "Of which database."] = None,
    recipient: Annotated[str | None, "Whose reply, where several have one of this id."] = None,
    is_by_file: Annotated[bool, "All that were parked because of their files."] = False,
) -> dict[str, Any]:
    """Queue a parked or deferred message, or a parked reply, again.

    Raises MessageNotFound, MessageConflict.

    Example: postroad exchange requeue order-17 --sender tablet-3
    """
    if is_by_file is (id_ is not None):
        raise ContentInvalid("give the id of a message, or --by-file")
    if id_ is None:
        # The server quarantines again what it still does not find.
        count = await _answer(connection, REQUEUE_BY_FILE, (database,))
        return {"id": "all", "count": count, "status": "OK"}
    answer: dict[str, Any] = await _answer(connection, REQUEUE, (id_, sender, database, recipient))
    refuse_requeue(answer, id_)
    return answer


def refuse_requeue(answer: Mapping[str, Any], id_: str) -> None:
    """Raise what the answer of the database means. Raises MessageNotFound, MessageConflict."""
    match answer["status"]:
        case "MISSING":
            raise MessageNotFound(
                f"there is no message {id_}", hint="list them: postroad exchange messages"
            )
        case "AMBIGUOUS":
            raise MessageConflict(
                f"several messages have the id {id_}",
                hint="name the sender, the database or the recipient, too",
            )
        case "CONFLICT":
            raise MessageConflict(
                f"message {id_} is {answer['state']}: only a parked or deferred one can be"
                " requeued",
                hint="messages that a restored database lost: postroad exchange replay",
            )


async def replay(
    connection: AsyncConnection[Any],
    database: str,
    *,
    from_seq: int | None = None,
    is_skipped: bool = False,
) -> int:
    """Queue again what a restored database lost; returns how many messages.

    `is_skipped` accepts the loss instead. That a database was restored counts a few seconds after
    it was reported, see `restored_in`. Raises DatabaseNotFound, NotRestored.
    """
    count: int = await _answer(connection, REPLAY, (database, from_seq, is_skipped))
    return count


async def restored_in(connection: AsyncConnection[Any], database: str) -> float | None:
    """Return after how many seconds a reported restore counts; None: none was reported."""
    seconds: float | None = await _answer(connection, RESTORED_IN, (database,))
    return seconds


async def add_route(
    connection: AsyncConnection[Any],
    id_: str,
    direction: Literal["in", "out"],
    queue: str,
    *,
    database: Annotated[str | None, "in: the mailbox that gets what is posted."] = None,
    recipient: Annotated[str | None, "out: whose replies are posted to the queue."] = None,
) -> None:
    """Add a route from a bus queue into a mailbox, or from replies to a bus queue.

    Raises RouteQueueMissing, ContentInvalid.

    Example: postroad exchange routes add orders in sample_orders --database sales
    """
    needed = {"in": ("database", database), "out": ("recipient", recipient)}[direction]
    if needed[1] is None:
        raise ContentInvalid(f"a route of direction {direction} needs its {needed[0]}")
    for name in filter(None, (id_, database, recipient)):
        _refuse_no_id(name)
    await _run(connection, ADD_ROUTE, (id_, direction, queue, database, recipient))


async def remove_route(connection: AsyncConnection[Any], id_: str) -> bool:
    """Remove a route; messages under way arrive. Returns whether it existed.

    Example: postroad exchange routes remove orders
    """
    return bool(await _answer(connection, REMOVE_ROUTE, (id_,)))


async def _end(
    connection: AsyncConnection[Any],
    call: str,
    process: str,
    outcome: str | None,
    error: str,
    by: str | None,
) -> dict[str, Any]:
    answer: dict[str, Any] = await _answer(connection, END, (call, process, outcome, error, by))
    match answer["status"]:
        case "MISSING":
            raise ProcessNotFound(
                f"there is no process {process}", hint="list them: postroad exchange processes"
            )
        case "OUTCOME":
            raise OutcomeNeeded(
                f"process {process} is {answer['state']}: its outcome is needed",
                hint="give the outcome: COMMITTED or ABORTED",
            )
        case "CONFLICT":
            raise ProcessContradiction(
                f"process {process} is {answer['state']}; that outcome contradicts it"
            )
    return answer


async def _answer(
    connection: AsyncConnection[Any], text: LiteralString, parameters: tuple[Any, ...]
) -> Any:
    return next(iter((await _run(connection, text, parameters))[0].values()))


async def _run(
    connection: AsyncConnection[Any], text: LiteralString, parameters: tuple[Any, ...]
) -> list[dict[str, Any]]:
    try:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(text, parameters)
            return await cursor.fetchall() if cursor.description else []
    except psycopg.Error as failure:
        raise (translate(failure) or failure) from failure


def _refuse_both(all_databases: bool, databases: Sequence[str] | None) -> None:
    if all_databases and databases:
        raise ContentInvalid("give databases or all databases, not both")


def _refuse_no_id(name: str) -> None:
    if not is_id(name):
        raise ContentInvalid(
            f"{name!r} cannot be an id",
            hint="use up to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
        )
