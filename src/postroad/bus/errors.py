"""Errors of the bus: one class per SQLSTATE that schema mbus raises.

Errors are distinguished by code, never by text. Other errors (a lost connection, a deadlock, a
missing privilege) remain errors of the driver.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by


class BusError(PostroadError, code="bus"):
    """Something that the bus refuses or cannot find."""


class QueueNotFound(BusError, code="MB001", kind="not_found"):
    """No queue has this name."""


class ConsumerNotFound(BusError, code="MB002", kind="not_found"):
    """The queue has no consumer of this name."""


class QueueExists(BusError, code="MB003", kind="refused"):
    """The queue exists with different settings (ncons or payload)."""


class ConsumerExists(BusError, code="MB004", kind="refused"):
    """The queue already has a consumer of this name."""


class InvalidName(BusError, code="MB005", kind="usage"):
    """A name may only contain lower-case letters, digits and underscores."""


class NameTooLong(BusError, code="MB006", kind="usage"):
    """A name would make an identifier longer than PostgreSQL's 63 bytes."""


class NameCollision(BusError, code="MB007", kind="refused"):
    """Two pairs of queue and consumer would have the same function name."""


class InvalidSelector(BusError, code="MB008", kind="usage"):
    """The selector is not a valid SQL condition."""


class ForeignIid(BusError, code="MB009", kind="usage"):
    """The iid is malformed, or belongs to another queue or database."""


class DuplicateIid(BusError, code="MB010", kind="refused"):
    """A message with this iid was posted before."""


class WrongPayload(BusError, code="MB011", kind="usage"):
    """The payload is not of the queue's type."""


class InvalidArgument(BusError, code="MB012", kind="usage"):
    """An argument is invalid, such as a negative amount or an expiry before the delay."""


class RoleMissing(BusError, code="MB013", kind="refused"):
    """The caller lacks the role that this queue requires."""


class WrongIsolation(BusError, code="MB014", kind="refused"):
    """Messages can only be taken under READ COMMITTED."""


class LeaseLost(BusError, code="MB015", kind="refused"):
    """The lease has expired; the message was leased again or is already acked."""


class LastConsumer(BusError, code="MB016", kind="refused"):
    """The last consumer of a queue cannot be removed."""


class QueueBusy(BusError, code="MB017", kind="unavailable", retryable=True):
    """Another session uses the queue; the same call may succeed a moment later."""


class Unsupported(BusError, code="MB019", kind="usage"):
    """This kind of queue does not support the call."""


class TriggerLoop(BusError, code="MB020", kind="refused"):
    """The trigger would create a loop."""


class OrderCircle(BusError, code="MB021", kind="refused"):
    """The message would wait for itself."""


class SagaPastPivot(BusError, code="MB022", kind="refused"):
    """The saga has passed its point of no return."""


class SagaNotFound(BusError, code="MB023", kind="not_found"):
    """No saga has this id, or the message is not a step of a saga."""


class SagaFinished(BusError, code="MB024", kind="refused"):
    """The saga is completed and can no longer be rolled back."""


class TakenInTransaction(BusError, code="MB025", kind="refused"):
    """The message was taken by the caller's own transaction, whose commit would consume it."""


class NotTaken(BusError, code="MB026", kind="refused"):
    """The message was not taken by the caller's transaction, or is already given back."""


class TriggerExists(BusError, code="MB030", kind="refused"):
    """A trigger between these queues already exists."""


class TriggerNotFound(BusError, code="MB031", kind="not_found"):
    """There is no trigger between these queues."""


class ScheduleNotFound(BusError, code="MB032", kind="not_found"):
    """There is no schedule of this name."""


class NotInstalled(BusError, kind="unavailable"):
    """The database has no schema mbus, or one older than this client."""


class RequestTimedOut(BusError, kind="unavailable", retryable=True):
    """No reply came in time; the request has expired and can safely be sent again."""


class TransactionFailed(BusError):
    """A handler caught a database error and returned; its transaction cannot be committed."""


class TransactionOwned(BusError, kind="usage"):
    """A handler tried to end the worker's transaction: return commits, raise rolls back."""


def is_overtaken(error: BaseException | None) -> bool:
    """Check whether a call failed because tables or functions were replaced while it waited.

    A change of a queue's consumers or an upgrade replaces all that a call uses: the same call then
    finds the new ones. An undefined table or function outside a function has another cause.
    """
    if isinstance(error, errors.InternalError_):
        # A take waited for a sequence of the table, which is named by its number.
        return error.diag.source_function == "relation_open"
    if not isinstance(error, errors.UndefinedTable | errors.UndefinedFunction):
        return False
    return "mbus." in (error.diag.internal_query or "")


def translate(
    error: psycopg.Error, *, queue: str | None = None, consumer: str | None = None
) -> BusError | None:
    """Return the bus error for a driver error, to be raised from it; None if there is none.

    `queue` and `consumer` are those of the call. Each queue has its own functions, so a missing
    function means a missing queue or consumer.
    """
    given = {"queue": queue, "consumer": consumer}
    facts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    own = raised_by(BusError, error, detail=error.diag.message_detail, **facts)
    if own is not None:
        return own
    if isinstance(error, errors.UntranslatableCharacter):
        return WrongPayload(
            f"PostgreSQL cannot store this character: {error.diag.message_detail}",
            hint="remove NUL characters; use a bytea queue for binary data",
            **facts,
        )
    if is_overtaken(error):
        return QueueBusy(
            f"queue {queue} or the bus was changed during the call",
            hint="repeat the call",
            **facts,
        )
    is_undefined = isinstance(error, errors.UndefinedFunction)
    if is_undefined and consumer is not None:
        return ConsumerNotFound(
            f"queue {queue} has no consumer {consumer}",
            hint="create it with mbus.create_consumer; mbus.consumers lists all",
            **facts,
        )
    if is_undefined and queue is not None:
        return QueueNotFound(
            f"queue {queue} does not exist, or was created again with another payload type",
            hint="create it with mbus.create_queue; mbus.queues lists all",
            **facts,
        )
    if is_undefined or isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return NotInstalled(
            "the bus is not installed in this database, or is older than this client",
            hint="run `postroad db install`",
            **facts,
        )
    return None
