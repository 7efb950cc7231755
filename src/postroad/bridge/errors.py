"""What can go wrong with a bridge.

```
BridgeError                   family
├── BridgeNotFound            MR001: no such bridge, outlet, inlet or shard
├── BridgeExists              MR002: the name is taken by another one
├── InvalidState              MR003: an unknown state was asked for
├── PayloadMismatch           MR004: the two queues carry different things
├── AddressUnknown            a database or broker that the settings do not name
├── SecretInAddress           an address with a password would be stored in the clear
├── BrokerUnavailable         RabbitMQ cannot be reached
├── BrokerRefused             RabbitMQ reached, and it says no: a right, a queue of another kind
├── Unroutable                RabbitMQ has no queue for a message
├── Unfit                     AMQP cannot carry a message, or RabbitMQ will never take it
└── NoShard                   a logical queue without an active shard
```

SQL raises its own SQLSTATEs; `translate` maps them, and leaves those of the bus to the bus.
"""

from __future__ import annotations

import psycopg

from postroad.bus.errors import translate as translate_bus
from postroad.errors import PostroadError
from postroad.postgres.errors import SchemaMissing, raised_by

__all__ = [
    "AddressUnknown",
    "BridgeError",
    "BridgeExists",
    "BridgeNotFound",
    "BrokerRefused",
    "BrokerUnavailable",
    "InvalidState",
    "NoShard",
    "PayloadMismatch",
    "SecretInAddress",
    "Unfit",
    "Unroutable",
    "translate",
]


class BridgeError(PostroadError, code="bridge"):
    """Something about a bridge went wrong."""


class BridgeNotFound(BridgeError, code="MR001", kind="not_found"):
    """There is no bridge, outlet, inlet or shard of that name."""


class BridgeExists(BridgeError, code="MR002", kind="refused"):
    """The name belongs to another bridge."""


class InvalidState(BridgeError, code="MR003", kind="usage"):
    """A bridge has no such state."""


class PayloadMismatch(BridgeError, code="MR004", kind="refused"):
    """The queue at the source and the queue at the target carry different payloads."""


class AddressUnknown(BridgeError, kind="usage"):
    """The settings name no such database or broker, and it is no address either."""


class SecretInAddress(BridgeError, kind="usage"):
    """An address with a password would be stored in the clear."""


class BrokerUnavailable(BridgeError, kind="unavailable", retryable=True):
    """RabbitMQ cannot be reached, or went away."""


class BrokerRefused(BridgeError, kind="refused"):
    """RabbitMQ refuses: a right is missing, or a queue or exchange is of another kind."""


class Unroutable(BridgeError, kind="refused"):
    """RabbitMQ has no queue that a message could go to."""


class Unfit(BridgeError, kind="refused"):
    """A message that AMQP cannot carry, or that RabbitMQ will never take: too long somewhere."""


class NoShard(BridgeError, kind="not_found"):
    """A logical queue has no shard that takes posts."""


_NO_SCHEMA = "3F000"


def translate(error: psycopg.Error) -> PostroadError | None:
    """Return the error of the bridge or the bus that a schema of theirs raised, else None."""
    if error.sqlstate == _NO_SCHEMA:
        return SchemaMissing(
            "the schemas mbus and bridge are not both in this database",
            hint="install them: postroad --database-url … db install",
        )
    return raised_by(BridgeError, error) or translate_bus(error)
