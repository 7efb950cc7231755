"""Consuming messages, many in one statement and one commit.

If a batch fails, its messages are taken one by one. A message that fails again is rejected with its
error: the bus retries it later, and moves it to the dead message queue after too many attempts.
"""

from __future__ import annotations

import logging
from datetime import timedelta

import psycopg

from postroad.bus import calls as bus_calls
from postroad.bus.polling import CHANNEL as BUS_CHANNEL
from postroad.bus.reconnect import TRANSIENT
from postroad.bus.session import run_async
from postroad.coordination.service import PollingService
from postroad.errors import PostroadError
from postroad.postgres.calls import Connection, value

logger = logging.getLogger(__name__)

BATCH_MESSAGES = 100
# Messages that no decision waits for are posted without a notice and taken in large batches.
PAUSE_DEFAULT = timedelta(milliseconds=100)


class Inbox(PollingService):
    """Passes the messages of one queue to one SQL function."""

    def __init__(
        self, role: str, dsn: str, queue: str, call: str, *parameters: object, listen: bool
    ) -> None:
        name, notice = f"coordination {role} inbox of {queue}", (dsn, BUS_CHANNEL, queue)
        super().__init__(name, dsn, notice=notice, pause=PAUSE_DEFAULT, listen=listen)
        self._subscription = (queue, role)
        take = f"mbus.consumen_{queue}_by_{role}(%s) m"
        # Messages posted by the function belong to the trace of the message that it handles; `case`
        # makes the trace be set before the function runs.
        followed = "mbus.follow_trace(m.headers)"
        each = f"case when {followed} is not null then {call.format('m.data')} end"
        self._many = f"select count({each}) from {take}"  # noqa: S608 - own names
        self._one = f"select m.iid, m.data::text, {followed} from {take}"  # noqa: S608 - own names
        self._call = f"select {call.format('%s::jsonb')}"
        self._parameters = parameters

    async def work(self, connection: Connection) -> bool:
        """Take a batch; return whether there may be more."""
        try:
            count = int(await value(connection, self._many, *self._parameters, BATCH_MESSAGES))
        except TRANSIENT:
            raise
        except (psycopg.Error, PostroadError) as failure:
            logger.warning("batch_refused", extra={"service": self.name, "reason": str(failure)})
            count = await self._one_by_one(connection)
        return count > 0

    async def _one_by_one(self, connection: Connection) -> int:
        count = 0
        while count < BATCH_MESSAGES:
            iid = None
            try:
                async with connection.transaction():
                    cursor = await connection.execute(self._one.encode(), (1,))
                    row = await cursor.fetchone()
                    if row is None:
                        break
                    iid = str(row[0])
                    await connection.execute(self._call.encode(), (row[1], *self._parameters))
            except TRANSIENT:
                # This does not count as a failed attempt.
                raise
            except psycopg.Error as failure:
                if iid is None:
                    raise
                error = f"{type(failure).__name__}: {failure}"
                rejection = bus_calls.reject(*self._subscription, iid, None, error, False)
                fate = await run_async(connection, rejection)
                logger.warning("message_refused", extra={"iid": iid, "fate": fate, "reason": error})
            count += 1
        return count
