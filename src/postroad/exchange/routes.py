"""Routes between the bus and the mailboxes, exactly once.

`in`: a message posted to a queue becomes a message of a database. The file is written first; then
one transaction consumes the message from the bus and records it here, so neither happens without
the other; then the file gets its name, as at every intake.

`out`: replies to a recipient are posted to a queue. One transaction posts and acknowledges.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from dataclasses import replace
from typing import Any

import orjson
import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroad.errors import PostroadError
from postroad.exchange.content import inline, parse, stored_json
from postroad.exchange.errors import ContentInvalid, ExchangeError, FileCorrupt
from postroad.exchange.intake import Arrival, item_of
from postroad.exchange.journal import REPLIES
from postroad.exchange.maintenance import Upkeep
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.reader import verified
from postroad.postgres.calls import Connection, select, value

logger = logging.getLogger(__name__)

ROUTES = "select * from exchange.route order by id"
# Done by one server at a time, so that the messages of a queue keep their order.
LOCK = "select pg_try_advisory_xact_lock(exchange._lock_class() + 3, hashtext(%s))"
CONSUME = (
    "select (c).iid, (c).data::text as data, mbus.follow_trace((c).headers) as traceparent"
    " from mbus.{}() c"
)
POLL_SECONDS = 0.2
POSTED = "id", "database", "sender", "recipient", "reply_to", "process"
PAGE = 50
PAGE_BYTES = 8 * 1024 * 1024
SENDER = "bus"


class Routes(Upkeep):
    """Carries messages along every route until it is stopped."""

    def __init__(self, mover: Mover) -> None:
        super().__init__("exchange routes", mover, POLL_SECONDS, self._carry_all, "routes_wait")

    async def _carry_all(self) -> None:
        """Serve each route; pause while nothing is due."""
        for route in await self._journal.rows(ROUTES):
            carry = self._carry_in if route["direction"] == "in" else self._carry_out
            try:
                if await carry(route):
                    self.seconds = 0
            except (psycopg.Error, PostroadError) as failure:
                # One route that fails does not stop the others.
                facts = {"route": route["id"], "reason": str(failure).strip()}
                logger.warning("route_failed", extra=facts)

    async def _carry_in(self, route: dict[str, Any]) -> bool:
        mover, storage = self._mover, self._mover.storage
        database = route["database_id"]
        await mover.open(database)
        storage.refuse_when_full()
        temporary: str | None = None
        is_named = False
        try:
            async with self._journal.connection() as connection, connection.transaction():
                if not await value(connection, LOCK, route["id"]):
                    return False
                function = sql.Identifier(f"consume_{route['queue']}_by_default")
                cursor = connection.cursor(row_factory=dict_row)
                await cursor.execute(sql.SQL(CONSUME).format(function))
                found = await cursor.fetchone()
                if found is None or found["iid"] is None:
                    return False
                arrival = _arrival(route, found)
                temporary = storage.temporary_name()
                stored = arrival.content.stored
                await mover.in_thread(storage.write, database, "Messages", temporary, stored)
                is_named = True
                row = await _recorded(connection, self._journal.epoch, arrival, temporary)
        except BaseException as failure:
            if temporary is not None and (not is_named or isinstance(failure, ExchangeError)):
                await mover.drop(database, "Messages", [temporary])
            raise
        await mover.follow_pending(numbers=[row["number"]])
        return True

    async def _carry_out(self, route: dict[str, Any]) -> bool:
        rows = await self._journal.rows(REPLIES, route["recipient"], PAGE, PAGE_BYTES, None)
        for row in rows:
            move = Move.of({**row, "name": row["file_name"]})
            try:
                stored = await verified(self._mover, move, limit_bytes=row["size"])
            except FileCorrupt:
                continue
            payload = {key: row[key] for key in POSTED}
            if row["media_type"] is None:
                payload["body"] = json.loads(stored or b"null")
            else:
                payload |= inline(stored or b"", row["media_type"])
            reply = row["number"], route["queue"], Jsonb(payload)
            await self._journal.call("post_reply", self._journal.epoch, *reply)
            await self._mover.follow_pending(numbers=[row["number"]])
        return bool(rows)


async def _recorded(
    connection: Connection, epoch: int, arrival: Arrival, temporary: str
) -> dict[str, Any]:
    """Record the message that the same transaction has consumed; always as a new message.

    A consumed message is never delivered again. An id that was used before belongs to another
    message: of a deleted queue of the same name, or with an iid that is shortened to the same end.
    """
    name = arrival.id
    while True:
        items = orjson.dumps([item_of(arrival, temporary)]).decode()
        (row,) = await select(connection, "exchange.intake", epoch, items)
        if row["answer"] == "new":
            return row
        arrival = replace(arrival, id=f"{name[:47]}.{secrets.token_hex(8)}")


def _arrival(route: dict[str, Any], found: dict[str, Any]) -> Arrival:
    """Create a message of the exchange from one of the bus; its id comes from the iid."""
    data = found["data"]
    try:
        # JSON that cannot be stored is kept as text; otherwise it would block the route.
        content = stored_json(parse(data.encode()) if data is not None else None)
    except ContentInvalid:
        content = stored_json(data)
    id_ = re.sub(r"[^A-Za-z0-9._-]", ".", found["iid"])[-64:].lstrip("._-")
    sender, traceparent = f"{SENDER}.{route['id']}"[:64], found["traceparent"] or None
    address = route["database_id"], id_, route["recipient"]
    return Arrival(sender, *address, None, content, traceparent)
