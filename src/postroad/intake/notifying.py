"""The step notify: the final status and the notice, in one transaction; then the clean-up.

```
uploaded_to_minio ──claim──> notifying ──finish──> completed   + message in file_events
                                                               + message in the outbox of RabbitMQ
```
"""

from __future__ import annotations

from postroad.intake.cleaning import clean_up
from postroad.intake.engine import Engine
from postroad.intake.holding import claim

__all__ = ["AMQP_QUEUE", "EVENT_QUEUE", "create_queues", "notify"]

EVENT_QUEUE = "file_events"
AMQP_QUEUE = "file_events_amqp"


async def create_queues(engine: Engine) -> None:
    """Make the queue of notices, and the outbox, unless they are there."""
    wanted = [EVENT_QUEUE, *([AMQP_QUEUE] if engine.settings.amqp_url else [])]
    for queue in wanted:
        await engine.journal.rows(
            "select mbus.create_queue(qname => %s, payload => 'jsonb')"
            " where not exists (select from mbus.queues where queue = %s)",
            queue,
            queue,
        )


async def notify(engine: Engine, ids: list[int]) -> list[int]:
    """Complete files and tell everybody, once; returns those that this call completed."""
    outbox = AMQP_QUEUE if engine.settings.amqp_url else None
    fields = list(engine.settings.amqp_fields)
    async with claim(engine, ids, "notify") as hold:
        held = [row["id"] for row in hold.rows]
        done: list[int] = []
        if held:
            done = await engine.journal.call("finish", held, hold.token, outbox, fields)
            for file_id in done:
                hold.let_go(file_id)
    await clean_up(engine)
    return done
