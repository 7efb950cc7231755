"""The leases that a consuming connection holds: extended by a heartbeat, acknowledged together.

```
leased ──ack──> settled ──flush──> gone
   │
   ├──give back──> ready for anybody, at once
   └──no heartbeat for a lease's time (kill -9)──> ready for anybody
```

The heartbeat has a thread and a session of its own, because the loop of a worker may be busy with a
task (pool `solo`) for as long as it likes. It also flushes acknowledgements that nobody else did.
Acks may come from any thread.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from postroad.broker.link import Link
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.service import ThreadService

__all__ = ["Lease", "Leases"]

logger = logging.getLogger(__name__)

LEASE_DEFAULT = timedelta(seconds=7)
BEATS_PER_LEASE = 4
# An acknowledgement waits this long for company.
ACK_DELAY_SECONDS = 0.1

Statement = tuple[str, Sequence[object]]
Lease = tuple[str, int]  # iid, token

EXTEND = "select mbus.extendn(iids => %s, tokens => %s, ttl => %s)"
NACK = "select mbus.nack(iid => %s, token => %s, delay => '0')"
PARK = "select mbus.nack(iid => %s, token => %s, error => %s, park => true)"


class Leases(ThreadService):
    """Everything that one consuming connection has in its hands."""

    def __init__(self, dsn: str, ttl: timedelta = LEASE_DEFAULT) -> None:
        super().__init__("broker heartbeat")
        self.ttl = ttl
        self._dsn = dsn
        self._owner = os.getpid()
        self._guard = threading.Lock()
        self._held: dict[int, str] = {}
        self._settled: list[Lease] = []
        self._settled_since = 0.0

    # What the loop of the worker does.

    def hold(self, leases: Iterable[Lease]) -> None:
        """Keep extending these."""
        with self._guard:
            for iid, token in leases:
                self._held[token] = iid
        if not self.is_running:
            self.start()

    def settle(self, token: int) -> None:
        """Take note that the work is done; `flush` tells the bus."""
        with self._guard:
            iid = self._held.get(token)
            if iid is None:
                return
            if not self._settled:
                self._settled_since = time.monotonic()
            self._settled.append((iid, token))

    def take_settled(self) -> list[Lease]:
        """Give what is to be acknowledged now; give it to `acknowledged` or to `unsettled`."""
        with self._guard:
            settled, self._settled = self._settled, []
        return settled

    def acknowledged(self, settled: list[Lease], late: str | None) -> None:
        """Forget what the bus has heard; some may have been too late, an array as text."""
        with self._guard:
            for _, token in settled:
                self._held.pop(token, None)
        if late not in (None, "{}"):
            logger.warning("acknowledged_too_late", extra={"iids": late})

    def unsettled(self, settled: list[Lease]) -> None:
        """Take back what the bus could not be told."""
        with self._guard:
            self._settled[:0] = settled

    def flush(self, link: Link) -> None:
        """Acknowledge what is settled."""
        settled = self.take_settled()
        if not settled:
            return
        try:
            [[late]] = link.run_prepared("select mbus.ackn($1, $2)", *arrays(settled))
        except BaseException:
            self.unsettled(settled)
            raise
        self.acknowledged(settled, late)

    def release(self, token: int) -> str | None:
        """Stop extending this one and give its iid, None if it is not held."""
        with self._guard:
            return self._held.pop(token, None)

    def give_back(self, link: Link, tokens: Iterable[int]) -> None:
        """Let others have these at once; those that are gone already are left alone."""
        statements: list[Statement] = []
        for token in tokens:
            iid = self.release(token)
            if iid is not None:
                statements.append((NACK, (iid, token)))
        for statement in statements:
            try:
                link.run(*statement)
            except SURVIVABLE as failure:
                if link.is_closed:
                    raise
                logger.warning("give_back_failed", extra={"reason": str(failure).strip()})

    def close(self) -> None:
        """End the heartbeat; what is still held goes back when its time is over."""
        with self._guard:
            self._held.clear()
        if self._owner == os.getpid():
            self.stop()

    # What the thread does.

    def run(self) -> None:
        """Beat until stopped, whatever happens to the database."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                link = Link(self._dsn, "broker heartbeat")
                try:
                    self._beat(link, backoff)
                finally:
                    link.close()
            except SURVIVABLE as failure:
                logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})
                self.pause(min(backoff.next_seconds(), 1.0))

    def _beat(self, link: Link, backoff: Backoff) -> None:
        self.announce_ready()
        link.run("set synchronous_commit = off")
        interval = self.ttl.total_seconds() / BEATS_PER_LEASE
        beaten = time.monotonic()
        while not self.pause(ACK_DELAY_SECONDS):
            now = time.monotonic()
            if self._settled and now - self._settled_since > ACK_DELAY_SECONDS:
                self.flush(link)
            if now - beaten >= interval:
                beaten = now
                self._extend(link)
            backoff.reset()

    def _extend(self, link: Link) -> None:
        with self._guard:
            held = [(iid, token) for token, iid in self._held.items()]
        if not held:
            return
        [[lost]] = link.run(EXTEND, (*columns(held), self.ttl))
        gone = set(lost or ())
        for iid, token in held:
            if iid in gone and self.release(token) is not None:
                logger.warning("lease_lost", extra={"iid": iid})


def arrays(leases: Sequence[Lease]) -> tuple[str, str]:
    """Give the same as the texts of arrays; nothing in an iid needs quotes."""
    iids, tokens = columns(leases)
    return "{" + ",".join(iids) + "}", "{" + ",".join(map(str, tokens)) + "}"


def columns(leases: Sequence[Lease]) -> tuple[list[str], list[int]]:
    """Give the two arrays that the bus asks for."""
    return [iid for iid, _ in leases], [token for _, token in leases]
