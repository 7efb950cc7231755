"""The calls of sagas, as values like all calls of the bus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from postroad.bus import parameters, rows
from postroad.bus.calls import Call
from postroad.bus.saga_status import SagaStep


def create_saga(
    name: str,
    steps: Sequence[Mapping[str, object]],
    data: object,
    deadline: datetime | None,
    pivot: str | None,
    is_parallel: bool,
    on_completed: str | None,
    on_compensated: str | None,
) -> Call[int]:
    """Build the call of mbus.create_saga."""
    return Call(
        "select mbus.create_saga(name => %s, steps => %s::jsonb, data => %s::jsonb, deadline => %s,"
        " pivot => %s, is_parallel => %s, on_completed => %s, on_compensated => %s)",
        (
            name,
            json.dumps(steps),
            json.dumps({} if data is None else data),
            parameters.zoned("deadline", deadline),
            pivot,
            is_parallel,
            on_completed,
            on_compensated,
        ),
        rows.value,
    )


def cancel_saga(saga_id: int, reason: str | None) -> Call[bool]:
    """Build the call of mbus.cancel_saga."""
    return Call("select mbus.cancel_saga(id => %s, reason => %s)", (saga_id, reason), rows.value)


def abort_saga(iid: str, reason: str | None) -> Call[bool]:
    """Build the call of mbus.abort_saga."""
    return Call("select mbus.abort_saga(iid => %s, reason => %s)", (iid, reason), rows.value)


def retry_saga(saga_id: int) -> Call[int]:
    """Build the call of mbus.retry_saga."""
    return Call("select mbus.retry_saga(id => %s)", (saga_id,), rows.value)


def settle_saga_step(saga_id: int, step: str) -> Call[bool]:
    """Build the call of mbus.settle_saga_step."""
    return Call("select mbus.settle_saga_step(id => %s, step => %s)", (saga_id, step), rows.value)


def status(saga_id: int | None, state: str | None, limit: int) -> Call[list[SagaStep]]:
    """Build the query of view mbus.saga_status: the latest sagas, each with its steps in order."""
    chosen = (
        "mbus.saga_status where saga_id in (select distinct saga_id from mbus.saga_status"
        " where saga_id = coalesce(%s, saga_id) and state = coalesce(%s, state)"
        " order by saga_id desc limit %s) order by saga_id desc, position"
    )
    return Call(rows.select(SagaStep, chosen), (saga_id, state, limit), rows.facts(SagaStep))
