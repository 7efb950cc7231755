"""Ways between the bus and the mailboxes, each exactly once.

`in`: what is posted to a queue becomes a message of a database. The file is written first; then one
transaction consumes the message from the bus and records it here, so neither happens without the
other; then the file gets its name, as at every intake.

`out`: replies to a recipient are posted to a queue. One transaction posts and acknowledges.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
from dataclasses import replace
from typing import Any

import orjson
import psycopg
from psycopg import AsyncCursor, sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroad.exchange.content import inline, parse, stored_json
from postroad.exchange.desk import Desk
from postroad.exchange.errors import ContentInvalid, ExchangeError, FileCorrupt, TakenOver
from postroad.exchange.files import temporary_name
from postroad.exchange.intake import INTAKE, Arrival, item_of
from postroad.exchange.placement import Move
from postroad.exchange.reading import verified
from postroad.service import Service

__all__ = ["Routes"]

logger = logging.getLogger(__name__)

ROUTES = "select * from exchange.route order by id"
CONSUME = (
    "select (c).iid, (c).data::text as data, mbus.follow_trace((c).headers) as traceparent"
    " from mbus.{}() c"
)
POST_REPLY = (
    "select exchange.post_reply(p_epoch => %s, p_number => %s, p_queue => %s, p_payload => %s)"
)
REPLIES = (
    "select * from exchange.replies(p_recipient => %s, p_limit => %s, p_max_bytes => %s,"
    " p_after => null)"
)
POLL_SECONDS = 0.2
PAGE = 50
PAGE_BYTES = 8 * 1024 * 1024
SENDER = "bus"


class Routes(Service):
    """Carries along every route until it is stopped."""

    def __init__(self, desk: Desk) -> None:
        super().__init__("exchange routes")
        self._desk = desk

    async def run(self) -> None:
        """Look at each route in turn; pause when nothing moves."""
        self.announce_ready()
        has_moved = False
        while not await self.pause(0 if has_moved else POLL_SECONDS):
            has_moved = False
            try:
                for route in await self._desk.journal.rows(ROUTES):
                    has_moved |= await self._carry(route)
            except TakenOver:
                raise
            except (psycopg.Error, ExchangeError, OSError) as failure:
                logger.warning("routes_wait", extra={"reason": str(failure).strip()})

    async def _carry(self, route: dict[str, Any]) -> bool:
        try:
            if route["direction"] == "in":
                return await self._carry_in(route)
            return await self._carry_out(route)
        except (psycopg.Error, ExchangeError) as failure:
            # One route that fails does not stop the others.
            logger.warning(
                "route_failed", extra={"route": route["id"], "reason": str(failure).strip()}
            )
            return False

    async def _carry_in(self, route: dict[str, Any]) -> bool:
        desk = self._desk
        database = route["database_id"]
        await desk.know_database(database)
        desk.refuse_when_full()
        temporary: str | None = None
        is_named = False
        try:
            async with desk.journal.connection() as connection, connection.transaction():
                cursor = connection.cursor(row_factory=dict_row)
                consume = sql.SQL(CONSUME).format(
                    sql.Identifier(f"consume_{route['queue']}_by_default")
                )
                await cursor.execute(consume)
                found = await cursor.fetchone()
                if found is None or found["iid"] is None:
                    return False
                arrival = _arrival(route, found)
                temporary = temporary_name()
                await desk.in_thread(
                    desk.storage.write, database, "Messages", temporary, arrival.content.stored
                )
                is_named = True
                row = await _recorded(cursor, desk.epoch, arrival, temporary)
        except ExchangeError:
            is_named = False
            raise
        finally:
            if temporary is not None and not is_named:
                with contextlib.suppress(ExchangeError):
                    await desk.in_thread(desk.storage.unlink, database, "Messages", temporary)
        await desk.follow_pending(numbers=[row["number"]])
        return True

    async def _carry_out(self, route: dict[str, Any]) -> bool:
        desk = self._desk
        rows = await desk.journal.rows(REPLIES, route["recipient"], PAGE, PAGE_BYTES)
        for row in rows:
            move = Move.of({**row, "name": row["file_name"]})
            try:
                stored = await verified(desk, move, limit_bytes=row["size"])
            except FileCorrupt:
                continue
            payload = {
                key: row[key]
                for key in ("id", "database", "sender", "recipient", "reply_to", "process")
            }
            content = inline(stored or b"", row["media_type"])
            if row["media_type"] is None:
                content = {"body": json.loads(stored or b"null")}
            await desk.journal.call(
                POST_REPLY, desk.epoch, row["number"], route["queue"], Jsonb({**payload, **content})
            )
            await desk.follow_pending(numbers=[row["number"]])
        return bool(rows)


async def _recorded(
    cursor: AsyncCursor[dict[str, Any]], epoch: int, arrival: Arrival, temporary: str
) -> dict[str, Any]:
    """Record what was consumed in the same transaction: always as a message of its own.

    What is consumed never comes again, so an id that was used before, by a queue of the same name
    that is gone or by an iid that is cut to the same end, is another message's.
    """
    name = arrival.id
    while True:
        items = orjson.dumps([item_of(arrival, temporary)]).decode()
        await cursor.execute(INTAKE, (epoch, items))
        row = await cursor.fetchone()
        if row is None:
            raise RuntimeError("the journal did not answer")
        if row["answer"] == "new":
            return row
        arrival = replace(arrival, id=f"{name[:47]}.{secrets.token_hex(8)}")


def _arrival(route: dict[str, Any], found: dict[str, Any]) -> Arrival:
    """Make a message from what the bus carries; its id comes from the iid."""
    data = found["data"]
    try:
        # Not everything that Python reads as JSON can be stored; what cannot is kept as text, or
        # the route would wait for it for ever.
        content = stored_json(parse(data.encode()) if data is not None else None)
    except ContentInvalid:
        content = stored_json(data)
    id_ = re.sub(r"[^A-Za-z0-9._-]", ".", found["iid"])[-64:].lstrip("._-")
    return Arrival(
        sender=f"{SENDER}.{route['id']}"[:64],
        database=route["database_id"],
        id=id_,
        recipient=route["recipient"],
        order=None,
        content=content,
        traceparent=found["traceparent"] or None,
    )
