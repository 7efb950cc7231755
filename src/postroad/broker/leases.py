"""The leases of one consuming connection, kept by `postroad.lease`.

The holder has its own thread and session, because a task may occupy the loop of a worker
(pool `solo`). The upkeep shares its event loop: with gevent and eventlet all threads are one
thread of the system, which can have only one loop. Acks come from any thread and are sent with the
next poll of the loop; the holder sends those that wait longer than the ack delay.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import TypeVar

from psycopg import AsyncConnection

from postroad.broker.link import Link
from postroad.bus import Lease, calls
from postroad.bus.call import Call
from postroad.bus.reconnect import SURVIVABLE
from postroad.bus.session import run_async
from postroad.lease import Holder, Keeper, lost_tokens
from postroad.postgres.connections import connect_async
from postroad.service import LoopThread, Service

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_DEFAULT = timedelta(seconds=7)
ACK_DELAY = timedelta(milliseconds=100)
ACK_BATCH = 1000
# The daemon thread may wait for a database that does not answer.
END_TIMEOUT_SECONDS = 1.0

Held = dict[int, Lease]


class Leases(Holder[int, Lease]):
    """Leases by token: held while the task runs, acked in batches."""

    def __init__(self, dsn: str, ttl: timedelta, upkeep: Service) -> None:
        keeper: Keeper[int, Lease] = Keeper(ttl, ack_delay=ACK_DELAY, ack_batch=ACK_BATCH)
        # Nothing is done about a lost lease: a task cannot be cancelled here, its ack is dropped.
        extend, lose, ack = self._extend_all, lambda _: None, self._ack_all
        super().__init__(keeper, extend, lose, transient=SURVIVABLE, ack=ack)
        self._dsn = dsn
        self._upkeep = upkeep
        self._owner = os.getpid()
        self._connection: AsyncConnection | None = None
        self._thread = LoopThread(self)
        self.ack_failed = keeper.ack_failed

    # Called by the worker's event loop.

    def begin(self) -> None:
        """Start the holder and the upkeep; a second call does nothing."""
        self._thread.start()

    def hold(self, leases: Iterable[Lease], since: float) -> None:
        """Extend these leases from now on; `since` is the time before the lease call."""
        self.claim(((lease.token, lease) for lease in leases), since)
        self.begin()

    def check(self) -> None:
        """Raise the error of a holder that has failed: its leases are no longer extended."""
        if not self._thread.is_running:
            self._thread.join()

    def take_finished(self) -> Held:
        """Return the leases to ack now; `acked` or `ack_failed` must follow."""
        return self._keeper.to_ack(is_due=True)

    def acked(self, finished: Held, late: str | None) -> None:
        """Forget acked leases; `late` is the array of the iids whose lease had ended, as text."""
        self._keeper.acked(finished)
        if late not in (None, "{}"):
            logger.warning("acknowledged_too_late", extra={"iids": late})

    def flush(self, link: Link) -> None:
        """Ack the finished leases."""
        finished = self.take_finished()
        if not finished:
            return
        try:
            [[late]] = link.run_prepared("select mbus.ackn($1, $2)", *arrays(finished))
        except BaseException:
            self.ack_failed(finished)
            raise
        self.acked(finished, late)

    def close(self) -> None:
        """Stop extending, and the upkeep; leases that are still held expire."""
        if self._owner == os.getpid():
            self._thread.request_stop()
            self._thread.wait_for_end(END_TIMEOUT_SECONDS)

    # Runs in the thread of the holder.

    async def run(self) -> None:
        """Keep the leases and do the upkeep until stopped."""
        try:
            await self.supervise(self._upkeep)
            await super().run()
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _call(self, call: Call[T]) -> T:
        if self._connection is None or self._connection.closed:
            # Without prepared statements, which a pooler in transaction mode could mix up.
            name = "postroad broker heartbeat"
            self._connection = await connect_async(
                self._dsn, application_name=name, is_pooled=True, autocommit=True
            )
            await self._connection.execute("set synchronous_commit = off")
        return await run_async(self._connection, call)

    async def _extend_all(self, leases: Held) -> Collection[int]:
        lost = await self._call(calls.extend_many(list(leases.values()), self._keeper.ttl))
        return lost_tokens(((one.iid, one.token) for one in leases.values()), lost)

    async def _ack_all(self, leases: Held) -> None:
        if late := await self._call(calls.ack_many(list(leases.values()))):
            logger.warning("acknowledged_too_late", extra={"iids": late})


def arrays(leases: Held) -> tuple[str, str]:
    """Return iids and tokens as the texts of arrays; nothing in an iid needs quotes."""
    iids = ",".join(lease.iid for lease in leases.values())
    return f"{{{iids}}}", f"{{{','.join(map(str, leases))}}}"
