"""One client process: posts, handles or leases until it is terminated, and records what it sees.

`python -m proof.faults.clients ROLE NAME`; the rest of its orders is JSON on its standard input,
because a DSN on the command line would show the password.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from postroad.bus import AsyncWorker, Bus, BusError, LeaseLost, Park, Saga, WorkerSettings
from postroad.bus.message import LeasedMessage
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Together
from proof.faults.workload import (
    IMPORTS,
    QUEUES,
    STEPS,
    WRITE_EFFECTS,
    Orders,
    bridges,
    imports,
)
from proof.history.record import Recorder

__all__ = ["main"]

LOST = (psycopg.Error, DatabaseUnavailable, OSError)
LEASE = timedelta(seconds=6)
GROUPS = 5
# Messages a second of a thread, for which batches have their usual size.
USUAL_RATE = 35.0
# A terminated poster repeats unanswered posts for so long.
GRACE_SECONDS = 60.0


class Poster:
    """Posts to every queue; repeats a call without an answer under the same dedup keys."""

    def __init__(
        self, orders: Orders, recorder: Recorder, number: int, stop: threading.Event
    ) -> None:
        self._orders = orders
        self._recorder = recorder
        self._stop = stop
        self._random = random.Random(f"{orders.seed} {number}")
        self._name = f"{recorder.name}-{number}"
        # Larger batches where more is posted: the number of calls stays.
        self._ten = 10 * max(1, round(orders.rate / USUAL_RATE))
        self._next = 0
        self._sequences: dict[str, int] = {}
        self._connection: psycopg.Connection | None = None
        self._stopped_at: float | None = None

    def run(self) -> None:
        """Post until told to stop."""
        kinds: list[tuple[int, Callable[[Bus], int]]] = [
            (30, self._orders_batch),
            (15, self._group_batch),
            (10, self._later),
            (10, self._short),
            (12, lambda bus: self._plain(bus, "leases", 10)),
            (12, lambda bus: self._plain(bus, "tasks", 10)),
            (8, self._in_transaction),
            (4, self._saga),
            (8, lambda bus: self._plain(bus, "exports", self._ten)),
        ]
        weights = [weight for weight, _ in kinds]
        with self._orders.bus() as bus:
            while not self._stop.is_set():
                [(_, post)] = self._random.choices(kinds, weights)
                count = post(bus)
                self._stop.wait(count / self._orders.rate)

    def _key(self) -> str:
        self._next += 1
        return f"{self._name}-{self._next}"

    def _orders_batch(self, bus: Bus) -> int:
        messages = [
            {"key": self._key(), "parity": self._random.choice(("even", "odd"))}
            for _ in range(2 * self._ten)
        ]
        properties = [{"parity": message["parity"]} for message in messages]
        self._post(bus, "orders", messages, properties=properties)
        return len(messages)

    def _group_batch(self, bus: Bus) -> int:
        messages: list[dict[str, Any]] = []
        for _ in range(self._ten):
            group = f"{self._name}-g{self._random.randrange(GROUPS)}"
            sequence = self._sequences[group] = self._sequences.get(group, 0) + 1
            messages.append({"key": self._key(), "group": group, "sequence": sequence})
        headers = [{"group": message["group"]} for message in messages]
        self._post(bus, "groups", messages, headers=headers)
        return len(messages)

    def _later(self, bus: Bus) -> int:
        until = self._recorder.now() + self._random.uniform(0.5, 8)
        messages = [{"key": self._key(), "delayed_until": until} for _ in range(self._ten)]
        self._post(bus, "later", messages, delayed_until=_moment(until))
        return len(messages)

    def _short(self, bus: Bus) -> int:
        until = self._recorder.now() + self._random.uniform(0.2, 20)
        messages = [{"key": self._key(), "expires": until} for _ in range(self._ten)]
        self._post(bus, "short", messages, expires=_moment(until))
        return len(messages)

    def _plain(self, bus: Bus, queue: str, amount: int) -> int:
        self._post(bus, queue, [{"key": self._key()} for _ in range(amount)])
        return amount

    def _post(
        self,
        bus: Bus,
        queue: str,
        messages: list[dict[str, Any]],
        headers: list[dict[str, Any]] | None = None,
        **given: Any,
    ) -> None:
        """Post a batch, and repeat it until there is an answer."""
        keys = [{"dedup_key": message["key"]} for message in messages]
        headers = [{**one, **key} for one, key in zip(headers or keys, keys, strict=True)]
        while self._may_repeat():
            call = self._recorder.invoke("post", queue=queue, messages=messages)
            try:
                iids = bus.post_many(queue, messages, headers=headers, **given)
            except BusError as failure:
                # An expiry that has passed meanwhile: nothing was posted by this call.
                self._recorder.answer(call, "post", "refused", error=repr(failure))
                return
            except LOST as failure:
                self._recorder.answer(call, "post", "unknown", error=_described(failure))
                time.sleep(self._random.uniform(0.1, 1))
            else:
                self._recorder.answer(call, "post", "ok", iids=iids)
                return

    def _may_repeat(self) -> bool:
        if not self._stop.is_set():
            return True
        self._stopped_at = self._stopped_at or time.monotonic()
        return time.monotonic() - self._stopped_at < GRACE_SECONDS

    def _in_transaction(self, bus: Bus) -> int:
        """Post in the transaction of a row: both or neither; a lost answer is not repeated."""
        key = self._key()
        call = self._recorder.invoke("post", queue="outbox", messages=[{"key": key}])
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._orders.dsn, prepare_threshold=None if self._orders.is_pooled else 5
                )
            with self._connection.transaction():
                self._connection.execute("insert into proof_outbox values (%s)", (key,))
                iid = bus.using(self._connection).post("outbox", {"key": key})
        except LOST as failure:
            self._recorder.answer(call, "post", "unknown", error=_described(failure))
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            time.sleep(0.2)
        else:
            self._recorder.answer(call, "post", "ok", iids=[iid])
        return 1

    def _saga(self, bus: Bus) -> int:
        key = self._key()
        fails = self._random.choice((None, None, "ticket", "bill"))
        saga = Saga("trip", data={"key": key, "fails": fails})
        for before, step in zip((None, *STEPS), STEPS, strict=False):
            saga.step(step, do=step, undo=f"cancel_{step}", after=[before] if before else [])
        call = self._recorder.invoke("saga", queue="trips", key=key)
        try:
            saga.start(bus)
        except LOST as failure:
            self._recorder.answer(call, "saga", "unknown", error=_described(failure))
        else:
            self._recorder.answer(call, "saga", "ok")
        return 2 * len(STEPS)


def post(orders: Orders, recorder: Recorder, stop: threading.Event) -> None:
    """Run two posters."""
    threads = [
        threading.Thread(target=Poster(orders, recorder, number, stop).run) for number in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _row(
    recorder: Recorder, message: Any, queue: str, consumer: str, detail: str | None = None
) -> dict[str, Any]:
    data = message.data
    return {
        "queue": queue,
        "consumer": consumer,
        "key": data["key"],
        "iid": message.iid,
        "handled": recorder.now(),
        "group": data.get("group"),
        "sequence": data.get("sequence"),
        "detail": detail,
    }


def _register(worker: AsyncWorker, recorder: Recorder, queue: str, consumer: str) -> None:
    @worker.handler(queue, consumer, batch=200)
    async def work(messages: Any, connection: Any) -> None:
        rows = [_row(recorder, message, queue, consumer) for message in messages]
        await connection.execute(WRITE_EFFECTS, (json.dumps(rows),))


async def handle(orders: Orders, recorder: Recorder) -> None:
    """Run a worker of the product: transaction mode, lease mode and the steps of sagas."""
    worker = AsyncWorker(orders.dsn, WorkerSettings(listen=not orders.is_pooled))

    def register_step(step: str, do: str, queue: str) -> None:
        @worker.handler(queue)
        async def act(message: Any, connection: Any) -> None:
            if do == "do" and message.data["fails"] == step:
                raise Park("the partner refuses")
            rows = [_row(recorder, message, "trips", "default", f"{do}:{step}")]
            await connection.execute(WRITE_EFFECTS, (json.dumps(rows),))

    for queue, consumers in QUEUES.items():
        for consumer in consumers if queue not in ("leases", "tasks") else ():
            _register(worker, recorder, queue, consumer)
    for step in STEPS:
        register_step(step, "do", step)
        register_step(step, "undo", f"cancel_{step}")

    @worker.handler("tasks", mode="lease", concurrency=4, ttl=LEASE)
    async def task(message: Any) -> None:
        recorder.note("handled", queue="tasks", key=message.data["key"])

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.request_stop)
    async with worker:
        await worker.join()


async def carry(orders: Orders, recorder: Recorder) -> None:
    """Run the bridges to RabbitMQ and from there, and a worker where they end."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = AsyncWorker(imports(orders.dsn))
    _register(worker, recorder, IMPORTS, "default")
    services = (*bridges(orders.dsn, orders.brokers), worker)
    async with Together("bridges and worker", services) as together:
        await together.join_or(stop)


def lease(orders: Orders, recorder: Recorder, stop: threading.Event) -> None:
    """Lease, note the work, ack; sometimes too late."""
    chance = random.Random(f"{orders.seed} lease")
    with orders.bus() as bus:
        while not stop.is_set():
            call = recorder.invoke("lease", queue="leases")
            try:
                messages = bus.lease("leases", amount=10, ttl=LEASE)
            except LOST as failure:
                recorder.answer(call, "lease", "unknown", error=_described(failure))
                stop.wait(chance.uniform(0.1, 1))
                continue
            held = [
                {
                    "iid": message.iid,
                    "token": message.token,
                    "key": message.data["key"],
                    "leased_until": message.leased_until.timestamp(),
                }
                for message in messages
            ]
            recorder.answer(call, "lease", "ok", messages=held)
            if not messages:
                stop.wait(0.1)
            elif chance.random() < 0.02:
                # Past the end of the lease: another holder may have them.
                stop.wait(LEASE.total_seconds() * chance.uniform(0.9, 1.3))
            for message in messages:
                recorder.note("handled", queue="leases", key=message.data["key"])
                _ack(bus, recorder, message, stop)


def _ack(bus: Bus, recorder: Recorder, message: LeasedMessage, stop: threading.Event) -> None:
    for _ in range(3):
        call = recorder.invoke("ack", queue="leases", iid=message.iid, token=message.token)
        try:
            bus.ack(message)
        except LeaseLost:
            recorder.answer(call, "ack", "refused")
            return
        except LOST as failure:
            # Acking is idempotent: the repetition has the same token.
            recorder.answer(call, "ack", "unknown", error=_described(failure))
            stop.wait(0.2)
        else:
            recorder.answer(call, "ack", "ok")
            return


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _described(failure: BaseException) -> str:
    return f"{type(failure).__name__} {getattr(failure, 'sqlstate', None) or ''}".strip()


def main() -> None:
    """Read the orders and play the role."""
    role, name = sys.argv[1:]
    orders = Orders(**json.load(sys.stdin))
    recorder = Recorder(Path(orders.folder), name)
    if role == "worker":
        asyncio.run(handle(orders, recorder))
        return
    if role == "carrier":
        asyncio.run(carry(orders, recorder))
        return
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    {"poster": post, "leaser": lease}[role](orders, recorder, stop)


if __name__ == "__main__":
    main()
