"""The leases of one consuming connection, kept by `postroad.lease`.

The holder has a thread and a session of its own, because the loop of a worker may be busy with a
task (pool `solo`) for as long as the task takes. Acks are sent with the next poll of the loop;
the holder sends those that wait longer than the ack delay. Acks may come from any thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from datetime import timedelta

from postroad.broker.link import Link
from postroad.bus.reconnect import SURVIVABLE
from postroad.lease.holder import Holder
from postroad.lease.keeper import Keeper, lost_tokens

logger = logging.getLogger(__name__)

LEASE_DEFAULT = timedelta(seconds=7)
ACK_DELAY = timedelta(milliseconds=100)
ACK_BATCH = 1000
# The daemon thread may wait for a database that does not answer.
END_TIMEOUT_SECONDS = 1.0

Lease = tuple[str, int]  # iid, token
Held = dict[int, Lease]

EXTEND = "select mbus.extendn(iids => %s, tokens => %s, ttl => %s)"
NACK = "select mbus.nack(iid => %s, token => %s, delay => '0')"
PARK = "select mbus.nack(iid => %s, token => %s, error => %s, park => true)"


class Leases:
    """Leases by token: held while the task runs, acked in batches."""

    def __init__(self, dsn: str, ttl: timedelta = LEASE_DEFAULT) -> None:
        self._ttl = ttl
        self._dsn = dsn
        self._owner = os.getpid()
        self._link: Link | None = None
        self._keeper: Keeper[int, Lease] = Keeper(ttl, ack_delay=ACK_DELAY, ack_batch=ACK_BATCH)
        self._holder: Holder[int, Lease] = Holder(
            self._keeper, self._extend, self._lose, transient=SURVIVABLE, ack=self._ack
        )
        self.now = self._holder.now
        self.finish = self._holder.finish
        self.release = self._holder.release
        self.ack_failed = self._keeper.ack_failed

    # Calls of the worker's event loop.

    def hold(self, leases: Iterable[Lease], since: float) -> None:
        """Extend these from now on; `since` is the time before the lease call."""
        self._holder.claim(((lease[1], lease) for lease in leases), since)
        self._holder.start()

    def check(self) -> None:
        """Raise the error of a holder that has failed: its leases are no longer extended."""
        if not self._holder.is_running:
            self._holder.join()

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
        """Extend no more; leases that are still held expire."""
        if self._owner == os.getpid():
            self._holder.request_stop()
            if self._holder.wait_for_end(END_TIMEOUT_SECONDS) and self._link is not None:
                self._link.close()

    # The calls of the holder, in its thread.

    def _session(self) -> Link:
        if self._link is None or self._link.is_closed:
            self._link = Link(self._dsn, "broker heartbeat")
            self._link.run("set synchronous_commit = off")
        return self._link

    def _extend(self, leases: Held) -> Collection[int]:
        if not leases:
            return ()
        iids, tokens = zip(*leases.values(), strict=True)
        [[lost]] = self._session().run(EXTEND, (list(iids), list(tokens), self._ttl))
        return lost_tokens(leases.values(), lost or ())

    def _ack(self, leases: Held) -> None:
        [[late]] = self._session().run_prepared("select mbus.ackn($1, $2)", *arrays(leases))
        self.acked({}, late)

    def _lose(self, lease: Lease) -> None:
        """Do nothing: Celery offers no way to cancel the task here, and its ack is dropped."""


def arrays(leases: Held) -> tuple[str, str]:
    """Return iids and tokens as the texts of arrays; nothing in an iid needs quotes."""
    iids, tokens = zip(*leases.values(), strict=True)
    return "{" + ",".join(iids) + "}", "{" + ",".join(map(str, tokens)) + "}"
