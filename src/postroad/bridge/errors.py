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
from postroad.postgres.errors import SchemaMissing

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


class BridgeError(PostroadError):
    """Something about a bridge went wrong."""

    code = "bridge"


class BridgeNotFound(BridgeError):
    """There is no bridge, outlet, inlet or shard of that name."""

    code = "MR001"
    kind = "not_found"


class BridgeExists(BridgeError):
    """The name belongs to another bridge."""

    code = "MR002"
    kind = "refused"


class InvalidState(BridgeError):
    """A bridge has no such state."""

    code = "MR003"
    kind = "usage"


class PayloadMismatch(BridgeError):
    """The queue at the source and the queue at the target carry different payloads."""

    code = "MR004"
    kind = "refused"


class AddressUnknown(BridgeError):
    """The settings name no such database or broker, and it is no address either."""

    code = "bridge_address_unknown"
    kind = "usage"


class SecretInAddress(BridgeError):
    """An address with a password would be stored in the clear."""

    code = "bridge_secret_in_address"
    kind = "usage"


class BrokerUnavailable(BridgeError):
    """RabbitMQ cannot be reached, or went away."""

    code = "bridge_broker_unavailable"
    kind = "unavailable"
    retryable = True


class BrokerRefused(BridgeError):
    """RabbitMQ refuses: a right is missing, or a queue or exchange is of another kind."""

    code = "bridge_broker_refused"
    kind = "refused"


class Unroutable(BridgeError):
    """RabbitMQ has no queue that a message could go to."""

    code = "bridge_unroutable"
    kind = "refused"


class Unfit(BridgeError):
    """A message that AMQP cannot carry, or that RabbitMQ will never take: too long somewhere."""

    code = "bridge_unfit"
    kind = "refused"


class NoShard(BridgeError):
    """A logical queue has no shard that takes posts."""

    code = "bridge_no_shard"
    kind = "not_found"


_NO_SCHEMA = "3F000"
_BY_STATE: dict[str, type[BridgeError]] = {
    leaf.code: leaf for leaf in (BridgeNotFound, BridgeExists, InvalidState, PayloadMismatch)
}


def translate(error: psycopg.Error) -> PostroadError | None:
    """Turn a database error into the fact it states; None where it is not one of ours."""
    if error.sqlstate == _NO_SCHEMA:
        return SchemaMissing(
            "the schemas mbus and bridge are not both in this database",
            hint="install them: postroad --database-url … db install",
        )
    leaf = _BY_STATE.get(error.sqlstate or "")
    if leaf is None:
        return translate_bus(error)
    diagnosis = error.diag
    return leaf(diagnosis.message_primary or str(error), hint=diagnosis.message_hint)
