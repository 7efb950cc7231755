"""Sagas: steps that are all done in the end, or each done one of them compensated.

```python
tour = (
    Saga("tour", data={"tour": 4711})
    .step("rooms", do="rooms_reservations", undo="cancel_rooms_reservations")
    .step("ticket_to", do="book_tickets", undo="cancel_ticket_to", after=["rooms"])
)
saga_id = tour.start(bus)            # await tour.start(bus) with an AsyncBus
```

Handlers are the handlers of the queues. Each message carries the headers `saga`, `step`, `bung` and
`idempotency_key`. A handler gives the saga up by raising `Park("reason")`, by `Sagas.abort` in its
own transaction, or, as ever, by taking the bung.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Self, overload

from postroad.bus import saga_calls
from postroad.bus.async_client import AsyncBus
from postroad.bus.calls import Call
from postroad.bus.client import Bus
from postroad.bus.message import Message
from postroad.bus.saga_status import SagaStep

__all__ = ["AsyncSagas", "Saga", "Sagas"]

STATUS_LIMIT_DEFAULT = 100


class Saga:
    """The plan of a saga, written step by step; nothing happens before `start`.

    `data` is what steps without data of their own get. `deadline`: rolled back when it is not
    completed by then. `pivot`: the step after which there is no way back. `is_parallel`:
    compensations need not wait for each other. `on_completed` and `on_compensated` name queues
    that get the closing message.
    """

    def __init__(
        self,
        name: str,
        *,
        data: object = None,
        deadline: datetime | None = None,
        pivot: str | None = None,
        is_parallel: bool = False,
        on_completed: str | None = None,
        on_compensated: str | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self.deadline = deadline
        self.pivot = pivot
        self.is_parallel = is_parallel
        self.on_completed = on_completed
        self.on_compensated = on_compensated
        self.steps: list[dict[str, object]] = []

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
        """Add a step: the queue that does it, the queue that undoes it, and what comes before.

        `undo_data` is by default the step's data. `consumer` is whose copy counts, where the
        queues have several.
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
        ConsumerNotFound, InvalidArgument, InvalidName, WrongPayload, and changes nothing then.
        """
        return Sagas(bus).start(self) if isinstance(bus, Bus) else AsyncSagas(bus).start(self)

    def call(self) -> Call[int]:
        """Give the call that starts it."""
        return saga_calls.create_saga(
            self.name,
            self.steps,
            self.data,
            self.deadline,
            self.pivot,
            self.is_parallel,
            self.on_completed,
            self.on_compensated,
        )

    def first_queues(self) -> set[str]:
        """Name the queues that have a message as soon as the saga is started."""
        return {str(step["do"]) for step in self.steps if not step["after"]}


class Sagas:
    """What can be done with sagas; transactions are those of the bus that it is made from."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def start(self, saga: Saga) -> int:
        """Post all messages of a saga, all or none, and return its id."""
        saga_id = self._bus._run(saga.call())
        for queue in saga.first_queues():
            self._bus._runner.announce(queue)
        return saga_id

    def cancel(self, saga_id: int, reason: str | None = None) -> bool:
        """Roll a saga back; False when it is being or was rolled back already.

        Steps in somebody's hands are left there and compensated if they get done. Raises
        SagaNotFound, SagaPastPivot, SagaFinished.
        """
        return self._bus._run(saga_calls.cancel_saga(saga_id, reason))

    def abort(self, message: Message, reason: str | None = None) -> bool:
        """Say, in the handler of a step, that nothing was done and the saga shall be rolled back.

        It happens when the handler's transaction commits, so use the bus on the handler's
        connection and return. The step itself is not compensated. Raises SagaPastPivot.
        """
        return self._bus._run(saga_calls.abort_saga(message.iid, reason))

    def retry(self, saga_id: int) -> int:
        """Give the dead messages of a stuck saga back; return how many. Raises SagaNotFound."""
        return self._bus._run(saga_calls.retry_saga(saga_id))

    def settle(self, saga_id: int, step: str) -> bool:
        """Say that somebody did by hand what a stuck step asks for; the saga goes on.

        False when the saga is not stuck at this step. Raises SagaNotFound.
        """
        return self._bus._run(saga_calls.settle_saga_step(saga_id, step))

    def status(
        self,
        saga_id: int | None = None,
        state: str | None = None,
        limit: int = STATUS_LIMIT_DEFAULT,
    ) -> list[SagaStep]:
        """List the steps of one saga or of the latest ones, in order. Read-only."""
        return self._bus._run(saga_calls.status(saga_id, state, limit))


class AsyncSagas:
    """What can be done with sagas; transactions are those of the bus that it is made from."""

    def __init__(self, bus: AsyncBus) -> None:
        self._bus = bus

    async def start(self, saga: Saga) -> int:
        """Post all messages of a saga, all or none, and return its id."""
        saga_id = await self._bus._run(saga.call())
        for queue in saga.first_queues():
            self._bus._runner.announce(queue)
        return saga_id

    async def cancel(self, saga_id: int, reason: str | None = None) -> bool:
        """Roll a saga back; False when it is being or was rolled back already.

        Steps in somebody's hands are left there and compensated if they get done. Raises
        SagaNotFound, SagaPastPivot, SagaFinished.
        """
        return await self._bus._run(saga_calls.cancel_saga(saga_id, reason))

    async def abort(self, message: Message, reason: str | None = None) -> bool:
        """Say, in the handler of a step, that nothing was done and the saga shall be rolled back.

        It happens when the handler's transaction commits, so use the bus on the handler's
        connection and return. The step itself is not compensated. Raises SagaPastPivot.
        """
        return await self._bus._run(saga_calls.abort_saga(message.iid, reason))

    async def retry(self, saga_id: int) -> int:
        """Give the dead messages of a stuck saga back; return how many. Raises SagaNotFound."""
        return await self._bus._run(saga_calls.retry_saga(saga_id))

    async def settle(self, saga_id: int, step: str) -> bool:
        """Say that somebody did by hand what a stuck step asks for; the saga goes on.

        False when the saga is not stuck at this step. Raises SagaNotFound.
        """
        return await self._bus._run(saga_calls.settle_saga_step(saga_id, step))

    async def status(
        self,
        saga_id: int | None = None,
        state: str | None = None,
        limit: int = STATUS_LIMIT_DEFAULT,
    ) -> list[SagaStep]:
        """List the steps of one saga or of the latest ones, in order. Read-only."""
        return await self._bus._run(saga_calls.status(saga_id, state, limit))
