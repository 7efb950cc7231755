"""The outbox of RabbitMQ: notices are published to an exchange, each confirmed by the broker.

A notice is posted to the queue `file_events_amqp` in the transaction of the final status. A bridge
takes it from there and waits for the broker's confirm. Notices wait while RabbitMQ is down, and
also before the bridge first runs. A crash between confirm and commit publishes a notice again,
under the same `message_id`.
"""

from __future__ import annotations

from postroad.bridge import RabbitOut, RabbitRoute
from postroad.intake.journal import Journal
from postroad.intake.notice import AMQP_QUEUE
from postroad.settings.intake import IntakeSettings

__all__ = ["open_outbox"]

BRIDGE = "intake_amqp"


async def open_outbox(dsn: str, settings: IntakeSettings) -> RabbitOut | None:
    """Return the publishing service, not started; None when RabbitMQ is not configured."""
    if settings.amqp_url is None:
        return None
    journal = Journal(dsn)
    try:
        await journal.run("create_queues", True)
        consumer = await journal.run("outbox_consumer", BRIDGE)
    finally:
        await journal.close()
    outbox = RabbitOut(
        BRIDGE,
        source=dsn,
        url=settings.amqp_url.get_secret_value(),
        queue=AMQP_QUEUE,
        consumer=None if consumer == f"to_{BRIDGE}" else consumer,
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
