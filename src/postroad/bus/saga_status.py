"""Read-only facts about sagas: the rows of view mbus.saga_status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["SagaStep"]


@dataclass(frozen=True, slots=True)
class SagaStep:
    """One step of a saga, with what is the same for all its steps (view mbus.saga_status)."""

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
