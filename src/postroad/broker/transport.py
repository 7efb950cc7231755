"""The transport `mbus://`: Celery's messages are leased rows of the bus.

A transport is one session on the database, shared by its channels. In a worker the event loop calls
`tick` before each wait; `drain_events` does the same for all other users. A lost database is a
connection error, after which Kombu opens a new transport and declares everything again.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import psycopg
from kombu.transport import base, virtual

from postroad.broker.address import database_of, masked
from postroad.broker.channel import Channel
from postroad.broker.consumption import Consumption
from postroad.broker.leases import LEASE_DEFAULT
from postroad.broker.link import Link
from postroad.broker.routes import Routes
from postroad.bus.errors import BusError
from postroad.bus.reconnect import TRANSIENT

# The longest wait of a worker's event loop.
LOOP_SECONDS = 1.0


class Transport(virtual.Transport):  # type: ignore[misc]  # Kombu has no types
    """One session on the database."""

    Channel = Channel
    driver_type = "mbus"
    driver_name = "postroad"
    can_parse_url = True
    polling_interval = None
    implements = base.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )
    connection_errors = (*virtual.Transport.connection_errors, *TRANSIENT)
    recoverable_connection_errors = connection_errors
    channel_errors = (*virtual.Transport.channel_errors, psycopg.Error, BusError)
    recoverable_channel_errors = channel_errors

    link: Link
    routes: Routes

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._consumption: Consumption | None = None
        self._is_polling = False
        self._loop: Any = None
        self._reminder = 0.0
        lease = client.transport_options.get("lease_seconds")
        self._ttl = timedelta(seconds=float(lease)) if lease else LEASE_DEFAULT

    def establish_connection(self) -> Transport:
        """Open the session."""
        self._dsn = database_of(self.client.hostname or "mbus:///")
        self._owner = os.getpid()
        self.link = Link(self._dsn, "broker")
        self.routes = Routes(self.link)
        self._waker, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._avail_channels.append(self.create_channel(self))
        return self

    def verify_connection(self, connection: Transport) -> bool:
        """Return whether the session is open."""
        return not connection.link.is_closed

    def close_connection(self, connection: Transport) -> None:  # noqa: ARG002
        """Return held messages to their queues and end the session."""
        self._leave_loop()
        for channels in (self._avail_channels, self.channels):
            while channels:
                channel = channels.pop()
                with contextlib.suppress(*TRANSIENT):
                    channel.close()
        if self._owner == os.getpid():
            if self._consumption is not None:
                with contextlib.suppress(psycopg.Error, BusError, *TRANSIENT):
                    self._consumption.close()
            for descriptor in (self._waker, self._woken):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self.link.close()

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL for logs."""
        return uri if include_password else masked(uri, mask)

    def driver_version(self) -> str:
        """Return the driver's version."""
        return str(psycopg.__version__)

    @property
    def consumption(self) -> Consumption:
        """The consumers of this connection, created on first use."""
        if self._consumption is None:
            self._consumption = Consumption(self._dsn, self.link, self.routes, self._ttl)
        return self._consumption

    def drain_events(self, connection: Transport, timeout: float | None = None) -> None:  # noqa: ARG002
        """Deliver available messages, or wait for one. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.tick():
            wait = self.consumption.seconds_to_poll()
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                wait = min(wait, left)
            if wait > 0:
                descriptors = [self.link.fileno(), self._waker]
                self._receive(select.select(descriptors, [], [], wait)[0])

    def tick(self) -> bool:
        """Poll queues that are due and deliver; return whether there were messages."""
        # A handler may itself wait for events.
        if self._consumption is None or self._is_polling or self._owner != os.getpid():
            return False
        self._is_polling = True
        try:
            has_come = self._consumption.poll(is_worker=self._loop is not None)
        finally:
            self._is_polling = False
        if self._loop is not None:
            self._remind_loop(has_come, self._consumption.seconds_to_poll())
        return has_come

    def nudge(self) -> None:
        """Wake the loop: another thread has acked a message, which frees a slot."""
        loop_thread = getattr(self._loop, "_loop_thread", None)
        if not self._is_polling and threading.get_ident() != loop_thread:
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._woken, b"!")

    def _receive(self, descriptors: Iterable[int]) -> None:
        if self._waker in descriptors:
            with contextlib.suppress(BlockingIOError):
                os.read(self._waker, 4096)
        self.link.receive()

    def register_with_event_loop(self, connection: Transport, loop: Any) -> None:  # noqa: ARG002
        """Run in the event loop of a worker."""
        if "celery.worker.control" in sys.modules:
            # Imported here: code that only publishes or uses Kombu needs no Celery worker.
            import postroad.broker.inspection  # noqa: F401
        self._loop = loop
        loop.on_tick.add(self.tick)
        for descriptor in (self.link.fileno(), self._waker):
            loop.add_reader(descriptor, self._receive, [descriptor])

    def unregister_from_event_loop(self, connection: Transport, loop: Any) -> None:  # noqa: ARG002
        """Unregister from the event loop."""
        self._leave_loop()

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None or self._owner != os.getpid():
            return
        loop.on_tick.discard(self.tick)
        with contextlib.suppress(psycopg.Error, OSError, KeyError, ValueError):
            loop.remove(self._waker)
            loop.remove(self.link.fileno())

    def _remind_loop(self, has_come: bool, wait: float) -> None:
        """Wake the loop in time for the next poll: it has computed its wait before this call."""
        now = time.monotonic()
        if has_come or not wait:
            self._wake()
        elif wait < LOOP_SECONDS and not now < self._reminder <= now + wait:
            self._reminder = now + wait
            self._loop.call_later(wait, self._wake)
            self._wake()
