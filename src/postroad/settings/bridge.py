"""Settings of the bridges: databases and brokers by name, and bridges that are always there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from postroad.settings.values import DatabaseUrl, Duration, Section

__all__ = ["BridgeDefinition", "BridgeSettings", "BrokerUrl"]

KEEP_DEFAULT = timedelta(days=1)
LAG_ALERT_DEFAULT = timedelta(minutes=5)


def _broker_url(value: Any) -> Any:
    """Accept `amqp://` and `amqps://`, and `file:/path` for a URL kept in a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            text = path.read_text(encoding="utf-8").strip()
        except OSError as failure:
            raise ValueError(f"cannot read {path}: {failure.strerror}") from failure
    if isinstance(text, str) and not text.startswith(("amqp://", "amqps://")):
        raise ValueError("a broker's URL begins with amqp:// or amqps://")
    return text


BrokerUrl = Annotated[SecretStr, BeforeValidator(_broker_url)]


class BridgeDefinition(Section):
    """A bridge as the settings describe it."""

    source: str
    """Where messages come from: a name below databases or brokers, or `home`."""

    target: str
    """Where they go: a name below databases or brokers, or `home`."""

    queue: str
    """The queue at the source."""

    queue_at_target: str | None = None
    """The queue at the target. Default: the same name."""

    selector: str | None = None
    """SQL condition over t: which messages cross. Default: all."""

    exchange: str = ""
    """RabbitMQ: the exchange. Default: the default exchange, which routes by queue."""

    exchange_kind: Literal["direct", "topic", "fanout", "headers"] = "topic"
    """RabbitMQ: the kind of an exchange that is made. Default topic."""

    routing_key: str | None = None
    """RabbitMQ: the routing key; `{group}` and the like are filled in. Default: the queue."""

    binding_key: str | None = None
    """RabbitMQ: binds the queue to the exchange. Default: the routing key."""

    queue_kind: Literal["quorum", "stream", "classic", "existing"] = "quorum"
    """RabbitMQ: the kind of a queue that is made; `existing` makes nothing. Default quorum."""


class BridgeSettings(Section):
    """Bridges to other databases and to RabbitMQ."""

    databases: dict[str, DatabaseUrl] = Field(default_factory=dict)
    """Databases by name, as URL or libpq string, or `file:/path` of one. `home` is this one."""

    brokers: dict[str, BrokerUrl] = Field(default_factory=dict)
    """RabbitMQ brokers by name, as `amqp://` or `amqps://` URL, or `file:/path` of one."""

    bridges: dict[str, BridgeDefinition] = Field(default_factory=dict)
    """Bridges by name that are opened wherever this file is used. Others: `postroad bridge add`."""

    batch_messages: int = Field(default=4000, ge=1, le=100_000)
    """Messages carried at once, at most; RabbitMQ gets 1000 at most. Default 4000."""

    batch_bytes: int = Field(default=4_000_000, ge=1_000)
    """About how many bytes that may be. Default 4000000."""

    hands: int = Field(default=3, ge=1, le=16)
    """Sessions at the source; one less is the number of batches taken ahead. Default 3."""

    keep: Duration = KEEP_DEFAULT
    """How long arrived messages are remembered, to drop them on another way. Default 1d."""

    lag_alert: Duration = LAG_ALERT_DEFAULT
    """Alert when the oldest waiting message is older than this and the lag grows. Default 5m."""
