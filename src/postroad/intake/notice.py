"""The step notify: the final status and the notice, in one transaction; then the clean-up.

```
uploaded_to_minio ──claim──> notifying ──finish──> completed   + message in file_events
                                                               + message in the outbox of RabbitMQ
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.intake.claim import claim
from postroad.intake.cleanup import clean_up
from postroad.intake.engine import Engine, open_journal
from postroad.settings.intake import IntakeSettings

if TYPE_CHECKING:
    from postroad.bridge import RabbitOut

AMQP_QUEUE = "file_events_amqp"
BRIDGE = "intake_amqp"


async def create_queues(engine: Engine) -> None:
    """Create the queue of notices, and the outbox if RabbitMQ is configured, unless they exist."""
    await engine.journal.change("create_queues", engine.settings.amqp_url is not None)


async def notify(engine: Engine, ids: list[int]) -> list[int]:
    """Complete files and post one notice for each; returns the ids that this call completed."""
    outbox = AMQP_QUEUE if engine.settings.amqp_url else None
    done: list[int] = []
    async with claim(engine, ids, "notify") as held:
        if held.rows:
            files = [row["id"] for row in held.rows]
            fields = list(engine.settings.amqp_fields)
            done = await held.change("finish", files, outbox, fields)
            for file_id in done:
                held.holder.release(file_id)
    await clean_up(engine)
    return done


async def open_outbox(dsn: str, settings: IntakeSettings) -> RabbitOut | None:
    """Return the publishing service, not started; None when RabbitMQ is not configured.

    A bridge takes the notices from their queue and waits for the broker's confirm, so they wait
    while RabbitMQ is down, and before the bridge first runs. A crash between confirm and commit
    publishes a notice again, under the same `message_id`.
    """
    from postroad.bridge import RabbitOut, RabbitRoute

    if settings.amqp_url is None:
        return None
    journal = open_journal(dsn)
    try:
        await journal.change("create_queues", True)
        consumer = await journal.change("outbox_consumer", BRIDGE)
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
