"""The message bus: queues, durable subscribers and leases inside PostgreSQL, schema `mbus`.

**What it promises.** A message is posted in a transaction and exists once that commits. Each
consumer (durable subscriber) of a queue gets its own copy; the workers of one consumer compete for
its copies, so each copy is handled by one worker at a time. A copy taken in a transaction is
consumed by its commit, together with the work, and ready again immediately after a rollback or a
lost connection. A copy taken by lease is ready again when the lease ends without an ack. Nothing is
lost; outside a shared transaction a message may be handled twice, but is never dropped.

**States of a consumer's copy.**

```
post ──> ready ──consume, commit──> gone
  │        │ ▲
  │        │ └── rollback · lease ended · nack · delay over · redrive
  │        ├──lease──> leased ──ack──> gone
  │        └──rejected too often, parked──> dmq ──redrive──> ready
  └──delayed_until──> delayed ──> ready          (expired: never delivered, cleaned up)
```

**What happens after a crash.** If a producer dies before its commit, nothing was posted; after it,
the message is durable, and if its NOTIFY was not sent, workers find it by polling. If a worker dies
in transaction mode, the server rolls back and the message is ready again immediately; in lease mode
it is ready again when the lease ends, and the old token can no longer ack. If PostgreSQL crashes,
the committed state is restored by recovery; workers and subscriptions reconnect. Without
maintenance, takes make due messages of their own queue ready; there is no leader.

**Use.**

```python
with Bus(dsn) as bus:
    bus.create_queue("orders", payload="jsonb")
    bus.post("orders", {"number": 1})

with psycopg.connect(dsn) as connection:            # shares the caller's transaction
    connection.execute("insert into orders ...")
    Bus(connection).post("orders", {"number": 2})

worker = Worker(dsn)

@worker.handler("orders")
def bill(message, connection):
    connection.execute("insert into bill ...")      # committed with the message

worker.serve()
```

`AsyncBus` and `AsyncWorker` have the same methods. A handler raises `Retry(after=…)` to try again
later and `Park(reason)` to give up. This package needs only the driver psycopg.
"""

from postroad.bus.client import AsyncBus, Bus
from postroad.bus.cloud_events import cloud_event
from postroad.bus.errors import (
    BusError,
    ConsumerExists,
    ConsumerNotFound,
    DuplicateIid,
    ForeignIid,
    InvalidArgument,
    InvalidName,
    InvalidSelector,
    LastConsumer,
    LeaseLost,
    NameCollision,
    NameTooLong,
    NotInstalled,
    NotTaken,
    OrderCircle,
    QueueBusy,
    QueueExists,
    QueueNotFound,
    RequestTimedOut,
    RoleMissing,
    SagaFinished,
    SagaNotFound,
    SagaPastPivot,
    ScheduleNotFound,
    TakenInTransaction,
    TransactionFailed,
    TransactionOwned,
    TriggerExists,
    TriggerLoop,
    TriggerNotFound,
    Unsupported,
    WrongIsolation,
    WrongPayload,
)
from postroad.bus.handlers import HeldMessage, MessageBatch, WorkerSettings
from postroad.bus.maintenance import AsyncMaintenance, Maintenance
from postroad.bus.message import Lease, LeasedMessage, Message
from postroad.bus.outcome import Park, Retry
from postroad.bus.request import Reply
from postroad.bus.saga import AsyncSagas, Saga, Sagas
from postroad.bus.saga_calls import SagaStep
from postroad.bus.status import (
    Consumer,
    ConsumerStatus,
    DeadMessage,
    Maintained,
    Measured,
    Queue,
    Replay,
    StoredMessage,
)
from postroad.bus.subscription import AsyncSubscription, Subscription
from postroad.bus.worker import AsyncWorker, Worker

__all__ = [
    "AsyncBus", "AsyncMaintenance", "AsyncSagas", "AsyncSubscription", "AsyncWorker", "Bus",
    "BusError", "Consumer", "ConsumerExists", "ConsumerNotFound", "ConsumerStatus", "DeadMessage",
    "DuplicateIid", "ForeignIid", "HeldMessage", "InvalidArgument", "InvalidName",
    "InvalidSelector", "LastConsumer", "Lease", "LeaseLost", "LeasedMessage", "Maintained",
    "Maintenance", "Measured", "Message", "MessageBatch", "NameCollision", "NameTooLong",
    "NotInstalled", "NotTaken", "OrderCircle", "Park", "Queue", "QueueBusy", "QueueExists",
    "QueueNotFound", "Replay", "Reply", "RequestTimedOut", "Retry", "RoleMissing", "Saga",
    "SagaFinished", "SagaNotFound", "SagaPastPivot", "SagaStep", "Sagas", "ScheduleNotFound",
    "StoredMessage", "Subscription", "TakenInTransaction", "TransactionFailed", "TransactionOwned",
    "TriggerExists", "TriggerLoop", "TriggerNotFound", "Unsupported", "Worker", "WorkerSettings",
    "WrongIsolation", "WrongPayload", "cloud_event",
]  # fmt: skip
