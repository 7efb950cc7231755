"""Sagas: all steps are done in the end, or each step that was done is compensated.

```python
tour = (
    Saga("tour", data={"tour": 4711})
    .step("rooms", do="rooms_reservations", undo="cancel_rooms_reservations")
    .step("ticket_to", do="book_tickets", undo="cancel_ticket_to", after=["rooms"])
)
saga_id = tour.start(bus)            # await tour.start(bus) with an AsyncBus
```

Steps are handled by ordinary handlers of their queues. Each message has the headers `saga`, `step`,
`bung` and `idempotency_key`. A handler aborts the saga by raising `Park("reason")`, by calling
`Sagas.abort` in its own transaction, or by taking the bung.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import Generic, Self, TypeVar, overload

from postroad.bus import saga_calls
from postroad.bus.call import Awaiting, Blocking, Call, Method, Methods, sql
from postroad.bus.client import AsyncBus, Bus
from postroad.bus.parameters import zoned

B = TypeVar("B", Bus, AsyncBus)


@dataclass(eq=False)
class Saga:
    """The definition of a saga, built step by step; nothing is posted before `start`.

    `data` is the default data of the steps. `deadline`: the saga is rolled back if it is not
    completed by then. `pivot`: the step after which the saga cannot be rolled back. `is_parallel`:
    compensations do not wait for each other. `on_completed` and `on_compensated` name queues
    that get the closing message.
    """

    name: str
    _: KW_ONLY
    data: object = None
    deadline: datetime | None = None
    pivot: str | None = None
    is_parallel: bool = False
    on_completed: str | None = None
    on_compensated: str | None = None
    steps: list[dict[str, object]] = field(default_factory=list, init=False)

    def step(
        self,
        name: str,
        *,
        do: str,
        undo: str | None = None,
        after: Sequence[str] = (),
        data: object = None,
        undo_data: object = None,
        consumer: str = "default",
    ) -> Self:
        """Add a step: the queue that does it, the queue that undoes it, and the steps before it.

        `undo_data` is by default the step's data. `consumer` is the consumer whose copy counts if
        the queues have several.
        """
        given = {"name": name, "do": do, "after": list(after), "consumer": consumer}
        optional = {"undo": undo, "data": data, "undo_data": undo_data}
        self.steps.append(
            {**given, **{key: value for key, value in optional.items() if value is not None}}
        )
        return self

    @overload
    def start(self, bus: Bus) -> int: ...
    @overload
    def start(self, bus: AsyncBus) -> Awaitable[int]: ...
    def start(self, bus: Bus | AsyncBus) -> int | Awaitable[int]:
        """Post all messages of the saga, all or none, and return its id; to be awaited on AsyncBus.

        In the caller's transaction when the bus has the caller's connection. Raises QueueNotFound,
        ConsumerNotFound, InvalidArgument, InvalidName, WrongPayload, and then changes nothing.
        """
        return Sagas(bus).start(self) if isinstance(bus, Bus) else AsyncSagas(bus).start(self)


def start(saga: Saga) -> Call[int]:
    """Post all messages of a saga, all or none, and return its id."""
    call = sql(
        int,
        "create_saga",
        name=saga.name,
        steps=json.dumps(saga.steps),
        data=json.dumps({} if saga.data is None else saga.data),
        deadline=zoned("deadline", saga.deadline),
        pivot=saga.pivot,
        is_parallel=saga.is_parallel,
        on_completed=saga.on_completed,
        on_compensated=saga.on_compensated,
    )
    return replace(call, wakes=[str(step["do"]) for step in saga.steps if not step["after"]])


class SagaMethods(Methods, Generic[B]):
    """Operations on sagas, in the transactions of the bus that they were created from."""

    def __init__(self, bus: B) -> None:
        self._run = bus._run

    start = Method(start)
    cancel = Method(saga_calls.cancel)
    abort = Method(saga_calls.abort)
    retry = Method(saga_calls.retry)
    settle = Method(saga_calls.settle)
    status = Method(saga_calls.status)


class Sagas(SagaMethods[Bus], Blocking):
    """Operations on sagas, in the transactions of the bus that it was created from."""


class AsyncSagas(SagaMethods[AsyncBus], Awaiting):
    """`Sagas` for code that awaits."""
