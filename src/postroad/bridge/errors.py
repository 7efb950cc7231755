"""Errors of bridges and shards."""

from __future__ import annotations

import psycopg

from postroad.bus.errors import translate as translate_bus
from postroad.errors import PostroadError
from postroad.postgres.errors import SchemaMissing, raised_by


class BridgeError(PostroadError, code="bridge"):
    """A bridge cannot be configured or cannot carry messages."""


class BridgeNotFound(BridgeError, code="MR001", kind="not_found"):
    """There is no bridge, outlet or inlet of that name."""


class BridgeExists(BridgeError, code="MR002", kind="refused"):
    """The name belongs to another bridge."""


class InvalidState(BridgeError, code="MR003", kind="usage"):
    """A bridge has no such state."""


class PayloadMismatch(BridgeError, code="MR004", kind="refused"):
    """The source queue and the target queue have different payload types."""


class AddressUnknown(BridgeError, kind="usage"):
    """The value is neither a database or broker of the settings nor an address."""


class SecretInAddress(BridgeError, kind="usage"):
    """The address contains a password, which would be stored in plain text."""


class BrokerUnavailable(BridgeError, kind="unavailable", retryable=True):
    """RabbitMQ cannot be reached, or the connection was lost."""


class BrokerRefused(BridgeError, kind="refused"):
    """RabbitMQ refuses: a right is missing, or a queue or exchange is of another kind."""


class Unroutable(BridgeError, kind="refused"):
    """RabbitMQ has no queue for the message."""


class Unfit(BridgeError, kind="refused"):
    """AMQP cannot carry the message, or RabbitMQ never accepts it: a part is too long."""


class NoShard(BridgeError, kind="not_found"):
    """The logical queue has no shard that takes posts."""


def translate(error: psycopg.Error) -> PostroadError | None:
    """Return the error of the bridge or the bus that a schema of theirs raised, else None."""
    if isinstance(error, psycopg.errors.InvalidSchemaName):
        return SchemaMissing(
            "the schemas mbus and bridge are not both in this database",
            hint="install them: postroad --database-url … db install",
        )
    return raised_by(BridgeError, error) or translate_bus(error)
