"""The outbox of RabbitMQ: notices leave the bus for an exchange, each confirmed by the broker.

A notice is posted to the queue `file_events_amqp` in the transaction of the final status, and taken
from there by a bridge that waits for the broker's confirm. While RabbitMQ is away notices wait. A
crash between confirm and commit sends a notice again, under the same `message_id`.
"""

from __future__ import annotations

from postroad.bridge import RabbitOut, RabbitRoute
from postroad.intake.notifying import AMQP_QUEUE
from postroad.settings.intake import IntakeSettings

__all__ = ["open_outbox"]

BRIDGE = "intake_amqp"


async def open_outbox(dsn: str, settings: IntakeSettings) -> RabbitOut | None:
    """Return the service that publishes, not started; None when nobody is to be told."""
    if settings.amqp_url is None:
        return None
    outbox = RabbitOut(
        BRIDGE,
        source=dsn,
        url=settings.amqp_url.get_secret_value(),
        queue=AMQP_QUEUE,
        route=RabbitRoute(
            queue=settings.amqp_queue,
            kind="quorum",
            exchange=settings.amqp_exchange,
            exchange_kind="topic",
            routing_key=settings.amqp_routing_key,
        ),
    )
    await outbox.install()
    return outbox
