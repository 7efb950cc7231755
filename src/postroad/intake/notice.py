"""The step notify: the final status and the notice, in one transaction; then the clean-up.

```
uploaded_to_minio ──claim──> notifying ──finish──> completed   + message in file_events
                                                               + message in the outbox of RabbitMQ
```
"""

from __future__ import annotations

from postroad.intake.claim import claim
from postroad.intake.cleanup import clean_up
from postroad.intake.engine import Engine

__all__ = ["AMQP_QUEUE", "create_queues", "notify"]

AMQP_QUEUE = "file_events_amqp"


async def create_queues(engine: Engine) -> None:
    """Create the queue of notices, and the outbox if RabbitMQ is configured, unless they exist."""
    await engine.journal.run("create_queues", engine.settings.amqp_url is not None)


async def notify(engine: Engine, ids: list[int]) -> list[int]:
    """Complete files and post one notice for each; returns the ids that this call completed."""
    outbox = AMQP_QUEUE if engine.settings.amqp_url else None
    done: list[int] = []
    async with claim(engine, ids, "notify") as held:
        if held.rows:
            files = [row["id"] for row in held.rows]
            fields = list(engine.settings.amqp_fields)
            done = await engine.journal.run("finish", files, held.token, outbox, fields)
            for file_id in done:
                held.holder.release(file_id)
    await clean_up(engine)
    return done
