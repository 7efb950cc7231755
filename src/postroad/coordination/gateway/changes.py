"""Server-sent events: what the Reader finishes, as it finishes it.

Each event has the Reader's own number as its id, so a client that reconnects with `Last-Event-ID`
misses no event that is still kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from postroad.postgres.calls import value
from postroad.postgres.connections import Pool

POLL_SECONDS = 0.1
# A comment line, so that proxies keep the connection.
KEEPALIVE_ROUNDS = 150
BATCH = 500

_LAST = 'select coalesce(max("Number"), 0) from coordination."AppEvent"'
_NEXT = (
    'select e."Number", e."Id", t."Name", e."Entities", e."PayloadCount",'
    ' coordination._status_name(e."AppEventStatusId"), e."FinishedAt"'
    ' from coordination."AppEvent" e'
    ' join coordination."AppEventType" t on t."Id" = e."AppEventTypeId"'
    ' where e."Number" > %s order by e."Number" limit %s'
)


async def changes(
    reader: Pool, after: int | None, entity: str | None, is_gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Yield changes until the client is gone: those after a number, or from now on."""
    if after is None:
        async with reader.connection() as connection:
            after = int(await value(connection, _LAST))
    yield ": listening\n\n"
    rounds = 0
    while not await is_gone():
        async with reader.connection() as connection:
            cursor = await connection.execute(_NEXT, (after, BATCH))
            found = await cursor.fetchall()
        for number, event_id, kind, entities, payloads, state, at in found:
            after = number
            if entity is None or entity in entities:
                data = json.dumps(
                    {
                        "event_id": event_id,
                        "type": kind,
                        "entities": entities,
                        "payloads": payloads,
                        "state": state,
                        "at": at.isoformat(),
                    }
                )
                yield f"id: {number}\nevent: change\ndata: {data}\n\n"
        rounds = 0 if found else rounds + 1
        if rounds % KEEPALIVE_ROUNDS == KEEPALIVE_ROUNDS - 1:
            yield ": still here\n\n"
        if not found:
            await asyncio.sleep(POLL_SECONDS)
