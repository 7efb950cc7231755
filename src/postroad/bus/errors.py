"""Errors of the bus: one class per SQLSTATE that schema mbus raises.

```
BusError
├── QueueNotFound      MB001   ├── WrongPayload       MB011
├── ConsumerNotFound   MB002   ├── InvalidArgument    MB012
├── QueueExists        MB003   ├── RoleMissing        MB013
├── ConsumerExists     MB004   ├── WrongIsolation     MB014
├── InvalidName        MB005   ├── LeaseLost          MB015
├── NameTooLong        MB006   ├── LastConsumer       MB016
├── NameCollision      MB007   ├── QueueBusy          MB017   retryable
├── InvalidSelector    MB008   ├── Unsupported        MB019
├── ForeignIid         MB009   ├── TriggerLoop        MB020
├── DuplicateIid       MB010   ├── OrderCircle        MB021
├── TriggerExists      MB030   ├── SagaPastPivot      MB022
├── TriggerNotFound    MB031   ├── SagaNotFound       MB023
├── SagaFinished       MB024   ├── NotInstalled       bus_not_installed
├── TakenInTransaction MB025   ├── NotTaken           MB026
├── RequestTimedOut    bus_request_timed_out   retryable
├── TransactionFailed          └── TransactionOwned
```

The code decides, never the text. Errors that are not the bus's own (a lost connection, a deadlock,
a missing privilege) stay the driver's errors.
"""

from __future__ import annotations

from typing import Any

import psycopg

from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by

__all__ = [
    "BusError",
    "ConsumerExists",
    "ConsumerNotFound",
    "DuplicateIid",
    "ForeignIid",
    "InvalidArgument",
    "InvalidName",
    "InvalidSelector",
    "LastConsumer",
    "LeaseLost",
    "NameCollision",
    "NameTooLong",
    "NotInstalled",
    "NotTaken",
    "OrderCircle",
    "QueueBusy",
    "QueueExists",
    "QueueNotFound",
    "RequestTimedOut",
    "RoleMissing",
    "SagaFinished",
    "SagaNotFound",
    "SagaPastPivot",
    "TakenInTransaction",
    "TransactionFailed",
    "TransactionOwned",
    "TriggerExists",
    "TriggerLoop",
    "TriggerNotFound",
    "Unsupported",
    "WrongIsolation",
    "WrongPayload",
    "translate",
]


class BusError(PostroadError, code="bus"):
    """Something that the bus refuses or cannot find."""


class QueueNotFound(BusError, code="MB001", kind="not_found"):
    """No queue has this name."""


class ConsumerNotFound(BusError, code="MB002", kind="not_found"):
    """The queue has no consumer of this name."""


class QueueExists(BusError, code="MB003", kind="refused"):
    """The queue exists in another shape (ncons or payload)."""


class ConsumerExists(BusError, code="MB004", kind="refused"):
    """The queue has a consumer of this name already."""


class InvalidName(BusError, code="MB005", kind="usage"):
    """A name is not made of lower-case letters, digits and underscores."""


class NameTooLong(BusError, code="MB006", kind="usage"):
    """A name would make an identifier longer than PostgreSQL's 63 bytes."""


class NameCollision(BusError, code="MB007", kind="refused"):
    """Two pairs of queue and consumer would make the same function name."""


class InvalidSelector(BusError, code="MB008", kind="usage"):
    """A selector does not parse, or is not a condition."""


class ForeignIid(BusError, code="MB009", kind="usage"):
    """The iid is malformed, or belongs to another queue or database."""


class DuplicateIid(BusError, code="MB010", kind="refused"):
    """A message with this iid was posted before."""


class WrongPayload(BusError, code="MB011", kind="usage"):
    """The payload is not of the queue's type."""


class InvalidArgument(BusError, code="MB012", kind="usage"):
    """An argument cannot be meant: a negative amount, an expiry before the delay."""


class RoleMissing(BusError, code="MB013", kind="refused"):
    """The caller lacks the role that this queue asks for."""


class WrongIsolation(BusError, code="MB014", kind="refused"):
    """Messages are taken under READ COMMITTED only."""


class LeaseLost(BusError, code="MB015", kind="refused"):
    """The lease has ended; the message belongs to somebody else, or is done."""


class LastConsumer(BusError, code="MB016", kind="refused"):
    """A queue keeps at least one consumer."""


class QueueBusy(BusError, code="MB017", kind="unavailable", retryable=True):
    """Somebody works in the queue right now; the same call may succeed a moment later."""


class Unsupported(BusError, code="MB019", kind="usage"):
    """The call does not exist for this kind of queue."""


class TriggerLoop(BusError, code="MB020", kind="refused"):
    """The trigger would copy messages round in a circle."""


class OrderCircle(BusError, code="MB021", kind="refused"):
    """The message would wait for itself."""


class SagaPastPivot(BusError, code="MB022", kind="refused"):
    """The saga has passed its point of no return."""


class SagaNotFound(BusError, code="MB023", kind="not_found"):
    """No saga has this id, or the message is no step of one."""


class SagaFinished(BusError, code="MB024", kind="refused"):
    """The saga is completed and cannot be rolled back any more."""


class TakenInTransaction(BusError, code="MB025", kind="refused"):
    """The message was taken by the caller's own transaction, whose commit would consume it."""


class NotTaken(BusError, code="MB026", kind="refused"):
    """The message was not taken by the caller's transaction, or is already given back."""


class TriggerExists(BusError, code="MB030", kind="refused"):
    """There is a trigger between these queues already."""


class TriggerNotFound(BusError, code="MB031", kind="not_found"):
    """There is no trigger between these queues."""


class NotInstalled(BusError, kind="unavailable"):
    """The database has no schema mbus, or one older than this client."""


class RequestTimedOut(BusError, kind="unavailable", retryable=True):
    """Nobody answered a request in time; it has expired, so asking again does no harm."""


class TransactionFailed(BusError):
    """A handler caught a database error and returned; its transaction cannot be committed."""


class TransactionOwned(BusError, kind="usage"):
    """A handler tried to end the worker's transaction: return commits, raise rolls back."""


_UNDEFINED_FUNCTION = "42883"
_UNDEFINED_TABLE = "42P01"
_UNDEFINED_SCHEMA = "3F000"
_UNTRANSLATABLE_CHARACTER = "22P05"


def is_overtaken(error: BaseException | None) -> bool:
    """Tell whether a call met tables that were replaced while it waited for them.

    Only a change of a queue's consumers replaces tables, and the functions with them: the same call
    finds the new ones. An undefined table outside a function is something else.
    """
    return isinstance(error, psycopg.errors.UndefinedTable) and "mbus." in (
        error.diag.internal_query or ""
    )


def translate(
    error: psycopg.Error, *, queue: str | None = None, consumer: str | None = None
) -> BusError | None:
    """Give the bus's error for the driver's, to be raised from it; None if it has none.

    `queue` and `consumer` name whom the call was about: the functions of a queue are its own, so a
    missing function means a missing queue or consumer.
    """
    state = error.sqlstate or ""
    facts: dict[str, Any] = {}
    if queue is not None:
        facts["queue"] = queue
    if consumer is not None:
        facts["consumer"] = consumer
    own = raised_by(BusError, error, detail=error.diag.message_detail, **facts)
    if own is not None:
        return own
    if state == _UNTRANSLATABLE_CHARACTER:
        return WrongPayload(
            f"PostgreSQL cannot store this character: {error.diag.message_detail}",
            hint="leave out NUL; what is not text goes into a queue of bytea",
            **facts,
        )
    if state == _UNDEFINED_FUNCTION and consumer is not None:
        return ConsumerNotFound(
            f"queue {queue} has no consumer {consumer}",
            hint="create it with mbus.create_consumer, or look at mbus.consumers",
            **facts,
        )
    if state == _UNDEFINED_FUNCTION and queue is not None:
        return QueueNotFound(
            f"queue {queue} does not exist, or was made anew with another payload",
            hint="create it with mbus.create_queue, or look at mbus.queues",
            **facts,
        )
    if is_overtaken(error):
        return QueueBusy(
            f"queue {queue} was given another consumer, or lost one, during the call",
            hint="do it again",
            **facts,
        )
    if state in {_UNDEFINED_FUNCTION, _UNDEFINED_TABLE, _UNDEFINED_SCHEMA}:
        return NotInstalled(
            "the bus is not installed in this database, or is older than this client",
            hint="run `postroad db install`",
            **facts,
        )
    return None
