"""Settings of the bridges: databases and brokers by name, and bridges that always exist."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, SecretStr

from postroad.settings.values import DatabaseUrl, Duration, Secret, Section


def _broker_url(value: SecretStr) -> SecretStr:
    for url in value.get_secret_value().split(";"):
        if not url.startswith(("amqp://", "amqps://")):
            raise ValueError("a broker's URL begins with amqp:// or amqps://")
    return value


class BridgeDefinition(Section):
    """The definition of a bridge in the settings."""

    source: str
    """Where messages come from: a name below databases or brokers, or `home`."""
    target: str
    """Where they go: a name below databases or brokers, or `home`."""
    queue: str
    """The queue at the source."""
    queue_at_target: str | None = None
    """The queue at the target. Default: the same name."""
    selector: str | None = None
    """SQL condition over t: which messages are forwarded. Default: all."""
    exchange: str = ""
    """RabbitMQ: the exchange. Default: the default exchange, which routes by queue."""
    exchange_kind: Literal["direct", "topic", "fanout", "headers"] = "topic"
    """RabbitMQ: the kind of an exchange that is created. Default topic."""
    routing_key: str | None = None
    """RabbitMQ: the routing key; `{group}` and the like are filled in. Default: the queue."""
    binding_key: str | None = None
    """RabbitMQ: the key that binds the queue to the exchange. Default: the routing key."""
    queue_kind: Literal["quorum", "stream", "classic", "existing"] = "quorum"
    """RabbitMQ: the kind of a queue that is created; `existing` creates none. Default quorum."""


class BridgeSettings(Section):
    """Bridges to other databases and to RabbitMQ."""

    databases: dict[str, DatabaseUrl] = Field(default_factory=dict)
    """Databases by name, as URL or libpq string, or `file:/path` of one. `home` is this one."""
    brokers: dict[str, Annotated[Secret, AfterValidator(_broker_url)]] = Field(default_factory=dict)
    """RabbitMQ brokers by name, as `amqp://` or `amqps://` URL, or `file:/path` of one. The URLs of
    a cluster are separated by `;` and tried in this order; the first one names the broker."""
    bridges: dict[str, BridgeDefinition] = Field(default_factory=dict)
    """Bridges by name that are opened wherever this file is used. Others: `postroad bridge add`."""
    shards: dict[str, dict[str, Annotated[int, Field(ge=0, le=1000)]]] = Field(default_factory=dict)
    """The databases of each logical queue and their weights: `orders = { db_a = 1, db_b = 2 }`. One
    of weight 0 gets no more messages and is still consumed."""
    batch_messages: int = Field(default=4000, ge=1, le=100_000)
    """The largest batch in messages; at most 1000 to RabbitMQ. Default 4000."""
    batch_bytes: int = Field(default=4_000_000, ge=1_000)
    """The approximate size of a batch in bytes. Default 4000000."""
    # `hands` is its deprecated name.
    connections: int = Field(
        default=3, ge=1, le=16, validation_alias=AliasChoices("connections", "hands")
    )
    """Sessions at the source; one less is the number of batches taken ahead. Default 3."""
    keep: Duration = timedelta(days=1)
    """How long arrived messages are remembered, to drop duplicates. Default 1d."""
    lag_alert: Duration = timedelta(minutes=5)
    """Alert when the oldest waiting message is older than this and the lag grows. Default 5m."""
