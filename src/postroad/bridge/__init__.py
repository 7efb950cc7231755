"""Bridges: the same queues over several databases and RabbitMQ.

**What it promises.**

| direction | promise |
|---|---|
| database to database | exactly once, in order of the queue and of each group |
| to RabbitMQ | at least once; each message has its iid as `message_id` |
| RabbitMQ to a database | exactly once in effect for messages with an id; else at least once |

**How.** A bridge has two ends. At the *outlet* a consumer of a queue is emptied by transactions
that stay open until the other end has committed; at the *inlet* a transaction posts the messages
and records them in the ledger. After a crash between the two commits the batch is sent again and
the ledger drops it. The headers `seenby` and `seenby_nodes` stop loops in any topology; the ledger
records the first iid of a message, so one that arrives over two bridges is posted once.

**States.** running ⇄ paused, running → draining → drained. A bridge whose other end is down takes
nothing, holds no transaction, and retries with backoff: its messages wait in the source's queue.
"""

from postroad.bridge.addresses import Addresses
from postroad.bridge.database import DatabaseBridge
from postroad.bridge.errors import *  # noqa: F403 - every error is public
from postroad.bridge.rabbit import RabbitRoute
from postroad.bridge.rabbit_in import RabbitIn
from postroad.bridge.rabbit_out import RabbitOut
from postroad.bridge.rabbit_publisher import Outgoing, RabbitPublisher
from postroad.bridge.service import PumpSettings
from postroad.bridge.shards import ShardedQueue, ShardedWorker
from postroad.bridge.supervisor import BridgeSupervisor

__all__ = [
    "Addresses", "BridgeHouse", "BridgeSupervisor", "DatabaseBridge", "Outgoing", "PumpSettings",
    "RabbitIn", "RabbitOut", "RabbitPublisher", "RabbitRoute", "ShardedQueue", "ShardedWorker",
]  # fmt: skip

# Deprecated alias.
BridgeHouse = BridgeSupervisor
