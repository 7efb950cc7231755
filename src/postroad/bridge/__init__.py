"""Bridges: the same queues over several databases and RabbitMQ.

**What it promises.**

| way | promise |
|---|---|
| database to database | exactly once, in order of the queue and of each group |
| to RabbitMQ | at least once; each message has its iid as `message_id` |
| RabbitMQ to a database | exactly once in effect for messages with an id; else at least once |

**How.** A bridge has two ends. At the *outlet* a consumer of a queue is emptied by transactions
that stay open until the other end has committed; at the *inlet* a transaction posts and notes in
the ledger what it has posted. Whoever dies between the two commits, the batch comes again and the
ledger drops it. `seenby` and its twin `seenby_nodes` stop loops in any topology; the ledger knows a
message by the name it got where it was first posted, so one that comes on two ways is posted once.

**States.** running ⇄ paused, running → draining → drained. A bridge whose other end is down takes
nothing, holds no transaction, and tries again with backoff: the source pays with depth alone.
"""

from __future__ import annotations

from postroad.bridge.addresses import Addresses
from postroad.bridge.database import DatabaseBridge
from postroad.bridge.errors import (
    AddressUnknown,
    BridgeError,
    BridgeExists,
    BridgeNotFound,
    BrokerRefused,
    BrokerUnavailable,
    InvalidState,
    NoShard,
    PayloadMismatch,
    SecretInAddress,
    Unfit,
    Unroutable,
)
from postroad.bridge.house import BridgeHouse
from postroad.bridge.pump import PumpSettings
from postroad.bridge.rabbit_in import RabbitIn
from postroad.bridge.rabbit_out import RabbitOut
from postroad.bridge.rabbit_publisher import Outgoing, RabbitPublisher
from postroad.bridge.rabbit_topology import RabbitRoute
from postroad.bridge.sharded_queue import ShardedQueue
from postroad.bridge.sharded_worker import ShardedWorker

__all__ = [
    "AddressUnknown",
    "Addresses",
    "BridgeError",
    "BridgeExists",
    "BridgeHouse",
    "BridgeNotFound",
    "BrokerRefused",
    "BrokerUnavailable",
    "DatabaseBridge",
    "InvalidState",
    "NoShard",
    "Outgoing",
    "PayloadMismatch",
    "PumpSettings",
    "RabbitIn",
    "RabbitOut",
    "RabbitPublisher",
    "RabbitRoute",
    "SecretInAddress",
    "ShardedQueue",
    "ShardedWorker",
    "Unfit",
    "Unroutable",
]
