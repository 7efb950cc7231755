"""The transport `mbus://`: Celery's messages are leased rows of the bus.

A transport is one session on the database, shared by its channels. It looks for messages when a
notice says so, hands them to the consumers and answers for them; a heartbeat holds the leases
(`leases.py`), and a share of the upkeep is done beside (`upkeep.py`). Both run only while somebody
consumes. In a worker the event loop calls `tick` before each wait; `drain_events` does the same for
everybody else.

When it dies half-way: a publisher before its commit has posted nothing; a worker's messages are
ready again when its leases end, seconds later; a lost database is a connection error, after which
Kombu opens a new transport and declares everything anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import psycopg
from kombu.transport import base, virtual

from postroad.broker import codec
from postroad.broker.address import database_of, masked
from postroad.broker.channel import Channel
from postroad.broker.leases import LEASE_DEFAULT, NACK, PARK, Leases, arrays
from postroad.broker.link import CHANNEL, Link
from postroad.broker.routes import COLUMNS, Route, route_of
from postroad.broker.upkeep import Upkeep
from postroad.broker.watch import Watch
from postroad.bus.errors import BusError
from postroad.postgres.errors import DatabaseUnavailable

__all__ = ["Transport"]

logger = logging.getLogger(__name__)

# Nothing depends on it but what a lost notice would leave lying.
RECHECK_SECONDS = 5.0
# The loop of a worker waits no longer than this.
LOOP_SECONDS = 1.0
TEMPORARY_PORTION = 100

# In looks the commit does not wait for the disk: a lease or an ack that a crash of the server
# forgets is done again.
Taken = tuple[str, str, int, bool]
UNAWAIT = "select broker.unawait($1)"


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
    connection_errors = (
        *virtual.Transport.connection_errors,
        psycopg.OperationalError,
        psycopg.InterfaceError,
        DatabaseUnavailable,
        OSError,
    )
    recoverable_connection_errors = connection_errors
    channel_errors = (*virtual.Transport.channel_errors, psycopg.Error, BusError)
    recoverable_channel_errors = channel_errors

    link: Link

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._routes: dict[str, Route] = {}
        self._watches: dict[str, Watch] = {}
        self._leases: Leases | None = None
        self._upkeep: Upkeep | None = None
        self._refused: list[tuple[int, bool]] = []
        self._guard = threading.Lock()
        self._rechecked = 0.0
        self._reminder = 0.0
        self._loop: Any = None
        self._is_looking = False
        lease = client.transport_options.get("lease_seconds")
        self._ttl = timedelta(seconds=float(lease)) if lease else LEASE_DEFAULT
        self._lease_text = f"{self._ttl.total_seconds()} seconds"

    # Kombu's side.

    def establish_connection(self) -> Transport:
        """Open the session."""
        self._dsn = database_of(self.client.hostname or "mbus:///")
        self.link = Link(self._dsn, "broker")
        self._waker, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._owner = os.getpid()
        self._avail_channels.append(self.create_channel(self))
        return self

    def verify_connection(self, connection: Transport) -> bool:
        """Tell whether the session is still there."""
        return not connection.link.is_closed

    def close_connection(self, connection: Transport) -> None:
        """Give back what is held and end the session."""
        self._leave_loop()
        for channels in (self._avail_channels, self.channels):
            while channels:
                channel = channels.pop()
                with contextlib.suppress(*self.connection_errors):
                    channel.close()
        if self._owner == os.getpid():
            self._end_threads()
            for descriptor in (self._waker, self._woken):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self.link.close()

    def _end_threads(self) -> None:
        if self._leases is not None:
            with contextlib.suppress(psycopg.Error, OSError, BusError):
                self._answer()
            self._leases.close()
        if self._upkeep is not None:
            self._upkeep.stop()

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Give the URL for logs."""
        return uri if include_password else masked(uri, mask)

    def driver_version(self) -> str:
        """Give the driver's version."""
        return psycopg.__version__

    def drain_events(self, connection: Transport, timeout: float | None = None) -> None:
        """Deliver what is there, or wait for it. Raises TimeoutError when nothing came."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.tick():
            wait = self._next_look()
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                wait = min(wait, left)
            if wait > 0:
                descriptors = [self.link.fileno(), self._waker]
                self._hear(select.select(descriptors, [], [], wait)[0])

    def register_with_event_loop(self, connection: Transport, loop: Any) -> None:
        """Live in the event loop of a worker."""
        self._loop = loop
        loop.on_tick.add(self.tick)
        loop.add_reader(self.link.fileno(), self._on_readable, self.link.fileno())
        loop.add_reader(self._waker, self._on_readable, self._waker)

    def unregister_from_event_loop(self, connection: Transport, loop: Any) -> None:
        """Leave it."""
        self._leave_loop()

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None or self._owner != os.getpid():
            return
        loop.on_tick.discard(self.tick)
        with contextlib.suppress(psycopg.Error, OSError, KeyError, ValueError):
            loop.remove(self._waker)
            loop.remove(self.link.fileno())

    def _on_readable(self, descriptor: int) -> None:
        self._hear([descriptor])

    # Queues.

    def find(self, queue: str) -> Route | None:
        """Look a queue up, asking the database only the first time."""
        route = self._routes.get(queue)
        if route is None:
            route = route_of(
                self.link.run(f"select {COLUMNS} from broker.find_queue(%s)", (queue,))
            )
            self.remember(route)
        return route

    def remember(self, route: Route | None) -> None:
        """Keep what was learnt; of temporary queues nothing, they come and go."""
        if route is not None and not route.is_temporary:
            self._routes[route.name] = route

    def forget(self, queue: str) -> None:
        """Ask anew next time."""
        self._routes.pop(queue, None)

    def add_level(self, route: Route, level: int) -> Route:
        """Give a priority its own bus queue."""
        found = route_of(
            self.link.run(f"select {COLUMNS} from broker.add_level(%s, %s)", (route.name, level))
        )
        if found is None:
            self.forget(route.name)
            return route
        self.remember(found)
        return found

    def is_consumed(self, queue: str) -> bool:
        """Tell whether this connection consumes from the queue."""
        return any(watch.queue == queue for watch in self._watches.values())

    # Watching.

    def watch(
        self,
        channel: Channel,
        queue: str,
        consumer_tag: str,
        deliver: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Take messages of this queue from now on."""
        self.link.run("select broker.adopt_queue(%s)", (queue,))
        self.forget(queue)
        route = self.find(queue)
        if route is None:
            raise channel_missing(queue)
        if self._leases is None:
            self.link.listen(CHANNEL, self._heard)
            self._leases = Leases(self._dsn, self._ttl)
            self._upkeep = Upkeep(self._dsn)
            self._upkeep.start()
        self._watches[consumer_tag] = Watch(channel, queue, route, deliver)

    def unwatch(self, consumer_tag: str) -> None:
        """Take no more."""
        watch = self._watches.pop(consumer_tag, None)
        if watch is not None and watch.is_awaited and not self.link.is_closed:
            self.link.run_prepared(UNAWAIT, str(watch.route.id))

    def _heard(self, payload: str) -> None:
        name = payload.removesuffix("!")
        for watch in self._watches.values():
            if watch.route.bus_name == name:
                watch.is_due = True
                watch.is_stale = watch.is_stale or name != payload

    def _hear(self, descriptors: Iterable[int]) -> None:
        if self._waker in descriptors:
            with contextlib.suppress(BlockingIOError):
                os.read(self._waker, 4096)
        self.link.hear()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._woken, b"!")

    # Looking.

    def tick(self) -> bool:
        """Answer what was settled, look where it is due, deliver; tell whether anything came."""
        if self._leases is None or self._is_looking or self._owner != os.getpid():
            return False
        # A consumer may publish or close while it is told of a message.
        self._is_looking = True
        try:
            has_come = self._look()
        finally:
            self._is_looking = False
        if self._loop is not None:
            self._remind_loop(has_come)
        return has_come

    def _remind_loop(self, has_come: bool) -> None:
        """See to it that the loop comes by again in time; it has reckoned its wait before us."""
        wait = self._next_look()
        if has_come or not wait:
            self._wake()
        elif wait < LOOP_SECONDS and self._reminder < time.monotonic():
            self._reminder = time.monotonic() + wait
            self._loop.call_later(wait, self._wake)
            self._wake()

    def _look(self) -> bool:
        if self._refused:
            self._refuse_all()
        if time.monotonic() - self._rechecked > RECHECK_SECONDS:
            self._recheck()
        has_come, now = False, time.monotonic()
        for watch in list(self._watches.values()):
            if watch.is_stale:
                self._refresh(watch)
            room = self._room(watch)
            if room and (watch.is_due or watch.look_at <= now):
                has_come = self._look_into(watch, room) or has_come
            elif watch.is_awaited and not room:
                self.link.run_prepared(UNAWAIT, str(watch.route.id))
                watch.rests_not()
        return has_come

    def _next_look(self) -> float:
        """Tell in how many seconds somebody is due for a look without being told."""
        now = time.monotonic()
        looks = [self._rechecked + RECHECK_SECONDS - now]
        for watch in self._watches.values():
            if self._room(watch):
                looks.append(0.0 if watch.is_due else watch.look_at - now)
        return max(min(looks), 0.0)

    def _room(self, watch: Watch) -> int:
        if watch.route.is_temporary:
            return TEMPORARY_PORTION
        return int(watch.channel.qos.room())

    def _look_into(self, watch: Watch, room: int) -> bool:
        found = 0
        watch.looks()
        for name in watch.route.bus_names:
            rows = self._take(watch, name, room - found)
            found += len(rows)
            self._deliver(watch, rows)
            if found >= room:
                break
        watch.found(found, room)
        return found > 0

    def _take(self, watch: Watch, name: str, amount: int) -> list[Taken]:
        """Acknowledge, say that we wait, and take, all in one call."""
        assert self._leases is not None  # noqa: S101 - watch() has made it
        settled = self._leases.take_settled()
        must_await = watch.is_short and not watch.is_awaited
        text, parameters = self._taking(watch, name, amount)
        before, count = "null, set_config('synchronous_commit', 'off', true)", len(parameters)
        if settled:
            before = f"mbus.ackn(${count + 1}, ${count + 2}), {before}"
            parameters += arrays(settled)
        if must_await:
            before = f"{before}, broker.await({watch.route.id})"
        try:
            rows = self.link.run_prepared(
                f"select l.*, a.* from (select {before}) a left join lateral {text} l on true",
                *parameters,
            )
        except psycopg.errors.UndefinedFunction:
            # The queue was deleted under us; the acks are told again.
            self._leases.unsettled(settled)
            watch.is_stale, watch.is_due = True, False
            return []
        except BaseException:
            self._leases.unsettled(settled)
            raise
        if settled:
            late = rows[0][4]
            self._leases.acknowledged(settled, late if late != "{}" else None)
        if must_await:
            watch.awaits()
        taken = [
            (iid, data, int(token or 0), attempt != "1")
            for iid, data, token, attempt, *_ in rows
            if iid is not None and data is not None
        ]
        if not watch.route.is_temporary:
            self._leases.hold((iid, token) for iid, _, token, _ in taken)
        return taken

    def _taking(self, watch: Watch, name: str, amount: int) -> tuple[str, list[str]]:
        if watch.route.is_temporary:
            return (
                "(select iid, data, 0, 1 from mbus.consume_temporary_text($1, $2))",
                [name, str(amount)],
            )
        return (
            f"(select iid, data, token, attempt from mbus.lease_{name}_by_default($1, $2))",
            [str(amount), self._lease_text],
        )

    def _deliver(self, watch: Watch, taken: list[Taken]) -> None:
        for iid, data, token, is_redelivered in taken:
            tag = str(token) if token else iid
            watch.deliver(codec.decode(data, watch.queue, tag, is_redelivered))

    def take_one(self, queue: str) -> dict[str, Any] | None:
        """Take one message without consuming for good."""
        route = self.find(queue)
        if route is None or route.is_temporary:
            return None
        if self._leases is None:
            self._leases = Leases(self._dsn, self._ttl)
        for name in route.bus_names:
            rows = self.link.run(
                f"select iid, data, token, attempt from mbus.lease_{name}_by_default(1, %s)",
                (self._ttl,),
            )
            for iid, data, token, attempt in rows:
                self._leases.hold([(iid, token)])
                return codec.decode(data, queue, str(token), attempt > 1)
        return None

    def _recheck(self) -> None:
        """Look everywhere once in a while, and say that the queues are in use."""
        self._rechecked = time.monotonic()
        used = [watch.route.id for watch in self._watches.values() if watch.route.expires_after]
        if used:
            self.link.run("select broker.touch(%s)", (used,))
        for watch in self._watches.values():
            watch.is_due = True
            watch.is_stale = watch.is_stale or not watch.route.is_temporary

    def _refresh(self, watch: Watch) -> None:
        self.forget(watch.queue)
        route = self.find(watch.queue)
        if route is None:
            watch.is_due = False
            return
        watch.route, watch.is_stale = route, False

    # Answering. From any thread.

    def settle(self, delivery_tag: str) -> None:
        """Take note of an ack."""
        if self._leases is not None and delivery_tag.isdigit():
            self._leases.settle(int(delivery_tag))
            self._nudge()

    def refuse(self, delivery_tag: str, *, requeue: bool) -> None:
        """Take note of a refusal."""
        if delivery_tag.isdigit():
            with self._guard:
                self._refused.append((int(delivery_tag), requeue))
            self._nudge()

    def _nudge(self) -> None:
        # The thread of the loop comes by itself; another one has made room that it knows nothing of.
        if not self._is_looking and threading.get_ident() != self._loop_thread:
            self._wake()

    @property
    def _loop_thread(self) -> int | None:
        return getattr(self._loop, "_loop_thread", None)

    def give_back(self, delivery_tags: Iterable[str]) -> None:
        """Let others have these at once."""
        if self._leases is None or self.link.is_closed:
            return
        self._answer()
        self._leases.give_back(self.link, [int(tag) for tag in delivery_tags if tag.isdigit()])

    def _answer(self) -> None:
        if self._leases is not None and not self.link.is_closed:
            self._leases.flush(self.link)
            self._refuse_all()

    def _refuse_all(self) -> None:
        assert self._leases is not None  # noqa: S101 - whoever refuses has been given something
        with self._guard:
            refused, self._refused = self._refused, []
        for token, requeue in refused:
            iid = self._leases.release(token)
            if iid is None:
                continue
            try:
                if requeue:
                    self.link.run(NACK, (iid, token))
                else:
                    self.link.run(PARK, (iid, token, "rejected by the consumer"))
            except psycopg.DatabaseError as failure:
                if self.link.is_closed:
                    raise
                logger.warning("refusal_failed", extra={"reason": str(failure).strip()})


def channel_missing(queue: str) -> Exception:
    """Say that a queue is not there."""
    from kombu.exceptions import ChannelError

    return ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.basic_consume", "404")
