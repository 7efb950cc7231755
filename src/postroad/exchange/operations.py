"""What an operator may do. Each takes a connection and works in the caller's transaction.

Rows change in that transaction; the server moves files afterwards, at its next sweep at the latest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from postroad.exchange import errors
from postroad.exchange.errors import ContentInvalid, MessageConflict, MessageNotFound
from postroad.postgres.calls import Connection, Row, call, select
from postroad.web.tokens import hash_token, new_token

ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# Ids of databases, clients, messages and replies; they are parts of paths.
Id = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$", max_length=64)]
Outcome = Literal["COMMITTED", "ABORTED"]

_REFUSALS: dict[str, tuple[type[errors.ExchangeError], str, str]] = {
    "MISSING": (
        errors.ProcessNotFound,
        "there is no process {process}",
        "list them: postroad exchange processes",
    ),
    "FORBIDDEN": (
        errors.NotAllowed,
        "process {process} belongs to another client",
        "only its owner may do this; others resolve it once it is in doubt",
    ),
    "NAMES": (
        errors.FileNotInProcess,
        "a file that is named is not one of this process",
        "use the names in the answer of API_1",
    ),
    "OUTCOME": (
        errors.OutcomeNeeded,
        "process {process} is {state}; this needs an outcome",
        "specify the outcome: COMMITTED or ABORTED",
    ),
}


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
    connection: Connection,
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
    await call(connection, "exchange.add_client", id_, hash_token(token), is_admin, *rights)
    return NewClient(id_, token, is_admin, *rights)


async def change_client(
    connection: Connection,
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
        raise ContentInvalid("no right is given", hint="specify a right to change")
    await call(connection, "exchange.change_client", id_, *given)


async def renew_client(connection: Connection, id_: str) -> dict[str, str]:
    """Give a client a new token; the old one ends within two seconds. Raises ClientNotFound.

    Example: postroad exchange clients renew erp-1
    """
    token = new_token("px")
    await call(connection, "exchange.renew_client", id_, hash_token(token))
    return {"token": token}


async def remove_client(connection: Connection, id_: str) -> None:
    """Remove a client; its messages stay. Raises ClientNotFound.

    Example: postroad exchange clients remove erp-1
    """
    await call(connection, "exchange.remove_client", id_)


async def add_database(
    connection: Connection,
    id_: str,
    *,
    resolution: Annotated[
        Literal["marker", "manual"] | None,
        "Who resolves a process in doubt: the ERP's marker, or a person. Default marker.",
    ] = None,
    policy: Annotated[
        Literal["go_on", "wait"] | None,
        "Whether messages behind a parked one of the same sender continue or wait.",
    ] = None,
) -> dict[str, Any]:
    """Add a database, or change how it is handled. Raises DatabaseByCase.

    Example: postroad exchange databases add sales --resolution marker
    """
    _refuse_no_id(id_)
    (row,) = await select(connection, "exchange.add_database", id_, resolution, policy)
    return {name: row[name] for name in ("id", "resolution", "policy")}


async def resolve(
    connection: Connection, id_: str, outcome: Outcome, *, by: str | None = None
) -> dict[str, Any]:
    """Resolve a process in doubt by hand, after checking the ERP's database.

    Its history names `by`. Raises ProcessNotFound, ProcessContradiction.

    Example: postroad exchange resolve 7b0c7c1e-… COMMITTED
    """
    return await _end(connection, "resolve", id_, outcome, "settled by an administrator", by)


async def release(
    connection: Connection,
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
    connection: Connection,
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
        raise ContentInvalid("pass the id of a message, or --by-file")
    if id_ is None:
        # The server puts files in quarantine again if it still does not find them.
        count = await call(connection, "exchange.requeue_by_file", None, database)
        return {"id": "all", "count": count, "status": "OK"}
    answer: dict[str, Any] = await call(
        connection, "exchange.requeue", None, id_, sender, database, recipient
    )
    refuse_requeue(answer, id_)
    return answer


def refuse_requeue(answer: Mapping[str, Any], id_: str) -> None:
    """Translate the answer of the database. Raises MessageNotFound, MessageConflict."""
    match answer["status"]:
        case "MISSING":
            raise MessageNotFound(
                f"there is no message {id_}", hint="list them: postroad exchange messages"
            )
        case "AMBIGUOUS":
            raise MessageConflict(
                f"several messages have the id {id_}",
                hint="specify the sender, the database or the recipient, too",
            )
        case "CONFLICT":
            raise MessageConflict(
                f"message {id_} is {answer['state']}: only a parked or deferred one can be"
                " requeued",
                hint="messages that a restored database lost: postroad exchange replay",
            )


def judge(answer: dict[str, Any], process: str) -> dict[str, Any]:
    """Return the protocol's answer for an answer of the journal, or raise its error."""
    status = answer["status"]
    if status in ("OK", "CANCELLED"):
        # Only these, so that a repeated call gives the same answer, whatever has happened since.
        kept = ("status", "expires_at")
        return {key: answer[key] for key in kept if answer.get(key) is not None}
    if status in _REFUSALS:
        kind, text, hint = _REFUSALS[status]
        raise kind(text.format(process=process, **answer), hint=hint, process=process)
    raise errors.ProcessContradiction(
        f"process {process} is {answer.get('state')}"
        + (f" and was {answer['outcome']}" if answer.get("outcome") else "")
        + "; this call contradicts that and changed nothing",
        process=process,
    )


async def replay(
    connection: Connection,
    database: str,
    *,
    from_seq: int | None = None,
    is_skipped: bool = False,
) -> int:
    """Queue the messages again that a restored database has lost; returns their number.

    `is_skipped` accepts the loss instead. A reported restore takes effect after a few seconds, see
    `restored_in`. Raises DatabaseNotFound, NotRestored.
    """
    return int(await call(connection, "exchange.replay", None, database, from_seq, is_skipped))


async def restored_in(connection: Connection, database: str) -> float | None:
    """Return the seconds until a reported restore takes effect; None if none was reported."""
    seconds: float | None = await call(connection, "exchange.restored_in", database)
    return seconds


async def add_route(
    connection: Connection,
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
    await call(connection, "exchange.add_route", id_, direction, queue, database, recipient)


async def remove_route(connection: Connection, id_: str) -> bool:
    """Remove a route; messages in transit arrive. Returns whether it existed.

    Example: postroad exchange routes remove orders
    """
    return bool(await call(connection, "exchange.remove_route", id_))


async def _end(connection: Connection, how: str, process: str, *given: str | None) -> Row:
    parameters = None, None, how, None, process, *given
    answer: Row = await call(connection, "exchange.end_process", *parameters)
    judge(answer, process)
    return answer


def _refuse_both(all_databases: bool, databases: Sequence[str] | None) -> None:
    if all_databases and databases:
        raise ContentInvalid("choose databases or all databases, not both")


def is_id(text: str) -> bool:
    """Check whether a text is a valid id."""
    return re.fullmatch(ID_PATTERN, text) is not None


def _refuse_no_id(name: str) -> None:
    if not is_id(name):
        raise ContentInvalid(
            f"{name!r} cannot be an id",
            hint="use up to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
        )
