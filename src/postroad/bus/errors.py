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


class BusError(PostroadError):
    """Something that the bus refuses or cannot find."""

    code = "bus"


class QueueNotFound(BusError):
    """No queue has this name."""

    code = "MB001"
    kind = "not_found"


class ConsumerNotFound(BusError):
    """The queue has no consumer of this name."""

    code = "MB002"
    kind = "not_found"


class QueueExists(BusError):
    """The queue exists in another shape (ncons or payload)."""

    code = "MB003"
    kind = "refused"


class ConsumerExists(BusError):
    """The queue has a consumer of this name already."""

    code = "MB004"
    kind = "refused"


class InvalidName(BusError):
    """A name is not made of lower-case letters, digits and underscores."""

    code = "MB005"
    kind = "usage"


class NameTooLong(BusError):
    """A name would make an identifier longer than PostgreSQL's 63 bytes."""

    code = "MB006"
    kind = "usage"


class NameCollision(BusError):
    """Two pairs of queue and consumer would make the same function name."""

    code = "MB007"
    kind = "refused"


class InvalidSelector(BusError):
    """A selector does not parse, or is not a condition."""

    code = "MB008"
    kind = "usage"


class ForeignIid(BusError):
    """The iid is malformed, or belongs to another queue or database."""

    code = "MB009"
    kind = "usage"


class DuplicateIid(BusError):
    """A message with this iid was posted before."""

    code = "MB010"
    kind = "refused"


class WrongPayload(BusError):
    """The payload is not of the queue's type."""

    code = "MB011"
    kind = "usage"


class InvalidArgument(BusError):
    """An argument cannot be meant: a negative amount, an expiry before the delay."""

    code = "MB012"
    kind = "usage"


class RoleMissing(BusError):
    """The caller lacks the role that this queue asks for."""

    code = "MB013"
    kind = "refused"


class WrongIsolation(BusError):
    """Messages are taken under READ COMMITTED only."""

    code = "MB014"
    kind = "refused"


class LeaseLost(BusError):
    """The lease has ended; the message belongs to somebody else, or is done."""

    code = "MB015"
    kind = "refused"


class LastConsumer(BusError):
    """A queue keeps at least one consumer."""

    code = "MB016"
    kind = "refused"


class QueueBusy(BusError):
    """Somebody works in the queue right now; the same call may succeed a moment later."""

    code = "MB017"
    retryable = True
    kind = "unavailable"


class Unsupported(BusError):
    """The call does not exist for this kind of queue."""

    code = "MB019"
    kind = "usage"


class TriggerLoop(BusError):
    """The trigger would copy messages round in a circle."""

    code = "MB020"
    kind = "refused"


class OrderCircle(BusError):
    """The message would wait for itself."""

    code = "MB021"
    kind = "refused"


class SagaPastPivot(BusError):
    """The saga has passed its point of no return."""

    code = "MB022"
    kind = "refused"


class SagaNotFound(BusError):
    """No saga has this id, or the message is no step of one."""

    code = "MB023"
    kind = "not_found"


class SagaFinished(BusError):
    """The saga is completed and cannot be rolled back any more."""

    code = "MB024"
    kind = "refused"


class TakenInTransaction(BusError):
    """The message was taken by the caller's own transaction, whose commit would consume it."""

    code = "MB025"
    kind = "refused"


class NotTaken(BusError):
    """The message was not taken by the caller's transaction, or is already given back."""

    code = "MB026"
    kind = "refused"


class TriggerExists(BusError):
    """There is a trigger between these queues already."""

    code = "MB030"
    kind = "refused"


class TriggerNotFound(BusError):
    """There is no trigger between these queues."""

    code = "MB031"
    kind = "not_found"


class NotInstalled(BusError):
    """The database has no schema mbus, or one older than this client."""

    code = "bus_not_installed"
    kind = "unavailable"


class RequestTimedOut(BusError):
    """Nobody answered a request in time; it has expired, so asking again does no harm."""

    code = "bus_request_timed_out"
    retryable = True
    kind = "unavailable"


class TransactionFailed(BusError):
    """A handler caught a database error and returned; its transaction cannot be committed."""

    code = "bus_transaction_failed"


class TransactionOwned(BusError):
    """A handler tried to end the worker's transaction: return commits, raise rolls back."""

    code = "bus_transaction_owned"
    kind = "usage"


_BY_CODE: dict[str, type[BusError]] = {
    leaf.code: leaf for leaf in BusError.__subclasses__() if leaf.code.startswith("MB")
}

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
    leaf = _BY_CODE.get(state)
    if leaf is not None:
        return leaf(
            error.diag.message_primary or str(error),
            hint=error.diag.message_hint,
            detail=error.diag.message_detail,
            **facts,
        )
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
