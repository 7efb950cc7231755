"""The calls of sagas: the methods of `Sagas` and `AsyncSagas`, and the start of a saga."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from postroad.bus.call import Call, listed, sql
from postroad.bus.message import Message

STATUS_LIMIT_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class SagaStep:
    """One step of a saga, with the columns that are equal for all its steps (mbus.saga_status)."""

    saga_id: int
    saga: str
    state: str
    step: str
    position: int
    after: list[str]
    step_state: str
    is_pivot: bool
    do_queue: str | None
    do_iid: str | None
    undo_queue: str | None
    undo_iid: str | None
    attempts: int
    undo_attempts: int
    step_error: str | None
    undo_error: str | None
    done_at: datetime | None
    undone_at: datetime | None
    error: str | None
    bung: str
    deadline: datetime | None
    is_late: bool
    created_at: datetime
    cancelled_at: datetime | None
    finished_at: datetime | None


def cancel(saga_id: int, reason: str | None = None) -> Call[bool]:
    """Roll a saga back; return False if its rollback has already begun.

    Steps in progress are left alone and compensated if they succeed. Raises SagaNotFound,
    SagaPastPivot, SagaFinished.
    """
    return sql(bool, "cancel_saga", id=saga_id, reason=reason)


def abort(message: Message, reason: str | None = None) -> Call[bool]:
    """Report, in the handler of a step, that nothing was done and the saga must be rolled back.

    It takes effect when the handler's transaction commits, so use the bus on the handler's
    connection and return. The step itself is not compensated. Raises SagaPastPivot.
    """
    return sql(bool, "abort_saga", iid=message.iid, reason=reason)


def retry(saga_id: int) -> Call[int]:
    """Redrive the dead messages of a stuck saga; return their number. Raises SagaNotFound."""
    return sql(int, "retry_saga", id=saga_id)


def settle(saga_id: int, step: str) -> Call[bool]:
    """Record that the work of a stuck step was done manually; the saga continues.

    Use it for a step whose message is lost or will never succeed: a failed step past the pivot then
    counts as done, a parked compensation as compensated. Returns False if the saga is not stuck at
    this step. Raises SagaNotFound.
    """
    return sql(bool, "settle_saga_step", id=saga_id, step=step)


def status(
    saga_id: int | None = None, state: str | None = None, limit: int = STATUS_LIMIT_DEFAULT
) -> Call[list[SagaStep]]:
    """List the steps of one saga or of the latest ones, in order. Read-only."""
    chosen = (
        "mbus.saga_status where saga_id in (select distinct saga_id from mbus.saga_status"
        " where saga_id = coalesce(%s, saga_id) and state = coalesce(%s, state)"
        " order by saga_id desc limit %s) order by saga_id desc, position"
    )
    return listed(SagaStep, chosen, saga_id, state, limit)
