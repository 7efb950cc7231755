"""Consuming: take messages when they are due, deliver them, acknowledge or reject them.

Notices arrive on the connection's own session; the heartbeat of the leases and the upkeep run
beside it in one thread, each with a separate session. `poll` is called by one thread at a time;
acknowledgements may come from any.

A message that cannot be decoded is dead-lettered. So is one whose handler raises in the event loop
of a worker, because there an exception would end the worker, and the next one with it. In
`drain_events` the exception of a handler belongs to the caller, as with every Kombu transport.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import psycopg

from postroad.broker import codec
from postroad.broker.channel import Channel, not_found
from postroad.broker.leases import Leases, arrays
from postroad.broker.link import CHANNEL, Link
from postroad.broker.routes import Routes
from postroad.broker.upkeep import Upkeep
from postroad.broker.watch import Taken, Watch
from postroad.bus import BusError, Lease, calls
from postroad.bus.measures import Measures

logger = logging.getLogger(__name__)

# Only matters after a lost notice.
RECHECK_SECONDS = 5.0
TEMPORARY_BATCH = 100
MAX_REASON_CHARACTERS = 500
NOT_OURS = "MB013"

UNAWAIT = "select broker.unawait($1)"


class Consumption:
    """The consumers of one connection."""

    def __init__(self, dsn: str, link: Link, routes: Routes, ttl: timedelta) -> None:
        self._link = link
        self._routes = routes
        self._ttl_text = f"{ttl.total_seconds()} seconds"
        self._measures: dict[str, Measures] = {}
        self._leases = Leases(dsn, ttl, Upkeep(dsn, self._measures))
        self._is_listening = False
        self._watches: dict[str, Watch] = {}
        self._guard = threading.Lock()
        # Token, and the reason to dead-letter the message; None returns it to its queue.
        self._refused: list[tuple[int, str | None]] = []
        self._rechecked = 0.0

    def watch(
        self, channel: Channel, queue: str, consumer_tag: str, deliver: Callable[[Any], Any]
    ) -> None:
        """Consume from this queue from now on."""
        self._link.run("select broker.adopt_queue(%s)", (queue,))
        self._routes.forget(queue)
        route = self._routes.find(queue)
        if route is None:
            raise not_found("queue", queue, "basic_consume")
        if not self._is_listening:
            self._link.listen(CHANNEL, self._on_notice)
            self._is_listening = True
        self._watches[consumer_tag] = Watch(channel, queue, route, deliver)
        # A client that only waits for a reply leaves maintenance to the workers.
        if not route.is_temporary:
            self._leases.begin()

    def unwatch(self, consumer_tag: str) -> None:
        """Stop a consumer."""
        if (watch := self._watches.pop(consumer_tag, None)) is not None:
            if watch.taken:
                self.give_back(token for _, _, token, _ in watch.taken)
                watch.taken.clear()
            if watch.is_awaited and not self._link.is_closed:
                self._link.run_prepared(UNAWAIT, str(watch.route.id))

    def is_watched(self, queue: str) -> bool:
        """Return whether this connection consumes from the queue."""
        return any(watch.queue == queue for watch in self._watches.values())

    def _on_notice(self, payload: str) -> None:
        name = payload.removesuffix("!")
        for watch in self._watches.values():
            if watch.route.bus_name == name:
                watch.is_due = True
                watch.is_stale = watch.is_stale or name != payload

    def close(self) -> None:
        """Send pending acks and rejections, and end the threads."""
        try:
            self.flush()
        finally:
            self._leases.close()

    def seconds_to_poll(self) -> float:
        """Return the seconds until a consumer polls without a notice."""
        times = [self._rechecked + RECHECK_SECONDS]
        for watch in self._watches.values():
            if watch.taken:
                return 0.0
            if self._free_slots(watch):
                times.append(watch.defer_until if watch.is_due else watch.poll_at)
        return max(min(times) - time.monotonic(), 0.0)

    def poll(self, *, is_worker: bool = False) -> bool:
        """Poll the queues that are due and deliver messages; return whether there were any.

        With `is_worker` a message whose handler raises is dead-lettered; otherwise the exception
        is raised and the remaining messages are delivered by the next call.
        """
        self._leases.check()
        if self._refused:
            self._refuse_all()
        now = time.monotonic()
        if now - self._rechecked > RECHECK_SECONDS:
            self._recheck(now)
        has_come = False
        for watch in list(self._watches.values()):
            if watch.taken:
                self._deliver(watch, is_worker)
                has_come = True
            if watch.is_stale:
                self._routes.forget(watch.queue)
                route = self._routes.find(watch.queue)
                watch.is_stale = False
                if route is None:
                    # The queue was deleted; the recheck finds it when it is created again.
                    watch.is_due = False
                else:
                    watch.route = route
            slots = self._free_slots(watch)
            is_due = watch.is_due or watch.poll_at <= now
            if slots and is_due and watch.is_worthwhile(slots, now):
                has_come = self._poll_queue(watch, slots, is_worker) or has_come
            elif watch.is_awaited and not slots:
                self._link.run_prepared(UNAWAIT, str(watch.route.id))
                watch.stop_waiting()
        return has_come

    def _free_slots(self, watch: Watch) -> int:
        if watch.route.is_temporary:
            return TEMPORARY_BATCH
        return int(watch.channel.qos.free_slots())

    def _poll_queue(self, watch: Watch, slots: int, is_worker: bool) -> bool:
        found = 0
        watch.begin_poll()
        for name in watch.route.bus_names:
            taken = self._take(watch, name, slots - found)
            found += len(taken)
            watch.taken.extend(taken)
            self._deliver(watch, is_worker)
            if found >= slots:
                break
        watch.end_poll(found, slots)
        return found > 0

    def _deliver(self, watch: Watch, is_worker: bool) -> None:
        while watch.taken:
            taken = watch.taken.popleft()
            message = self._read(watch.channel, watch.queue, taken)
            if message is None:
                continue
            try:
                watch.deliver(message)
            except Exception as failure:
                if not is_worker:
                    raise
                logger.exception("delivery_failed", extra={"iid": taken[0]})
                # Absent if the handler acknowledged or rejected the message before it raised.
                if watch.channel.qos.delivered.pop(message.delivery_tag, None) is not None:
                    self.refuse(taken[2], _reason(failure))
                self._refuse_all()
                # A task that failed while Celery gave it to the pool keeps its slot of the pool,
                # so a worker that continued would run out of slots.
                frames = traceback.walk_tb(failure.__traceback__)
                if any(frame.f_code.co_name == "execute_using_pool" for frame, _ in frames):
                    raise

    def _read(self, channel: Channel, queue: str, taken: Taken) -> Any:
        """Decode a message; return None for one that is dead-lettered because it cannot be."""
        iid, data, token, is_redelivered = taken
        try:
            raw = codec.decode(data, queue, str(token) if token else iid, is_redelivered)
            return channel.Message(raw, channel=channel)
        except Exception as failure:  # noqa: BLE001 - hostile text may raise anything
            logger.warning("message_unreadable", extra={"iid": iid, "reason": repr(failure)})
            self.refuse(token, _reason(failure))
            return None

    def _take(self, watch: Watch, name: str, amount: int) -> list[Taken]:
        """Ack, register the wait, and take, all in one call.

        The commit does not wait for the disk: a lease or an ack that a server crash loses is
        repeated.
        """
        since = self._leases.now()
        finished = self._leases.take_finished()
        must_await = watch.is_short and not watch.is_awaited
        text = (
            "select iid, data, token, attempt, extract(epoch from"
            " leased_until - $2::interval - coalesce(delayed_until, added)) as wait"
            f" from mbus.leasen_{name}_by_default($1, $2)"
        )
        parameters = [str(amount), self._ttl_text]
        if watch.route.is_temporary:
            text = "select iid, data, 0, 1, 0 from mbus.consume_temporary_text($2, $1)"
            parameters = [str(amount), name]
        first = "set_config('synchronous_commit', 'off', true)"
        if finished:
            first = f"mbus.ackn($3, $4), {first}"
            parameters += arrays(finished)
        if must_await:
            first = f"{first}, broker.await({watch.route.id})"
        try:
            rows = self._link.run_prepared(
                f"select l.*, a.* from (select {first}) a left join lateral ({text}) l on true",
                *parameters,
            )
        except psycopg.errors.UndefinedFunction:
            # The queue was deleted meanwhile; the acks are repeated.
            self._leases.ack_failed(finished)
            watch.is_stale = True
            return []
        except BaseException as failure:
            self._leases.ack_failed(finished)
            if not (watch.route.is_temporary and getattr(failure, "sqlstate", None) == NOT_OURS):
                raise
            logger.warning("queue_taken_over", extra={"queue": watch.queue})
            self._watches = {tag: one for tag, one in self._watches.items() if one is not watch}
            return []
        if finished:
            self._leases.acked(finished, rows[0][5])
        if must_await:
            watch.start_waiting()
        taken = [
            (iid, data or "", int(token or 0), attempt != "1")
            for iid, data, token, attempt, *_ in rows
            if iid is not None
        ]
        if not watch.route.is_temporary:
            self._leases.hold((Lease(iid, token) for iid, _, token, _ in taken), since)
            if taken:
                measures = self._measures.setdefault(name, Measures(name, "default"))
                measures.add("wait", [max(0.0, float(row[4] or 0)) for row in rows])
                measures.add("attempts", [int(row[3] or 1) for row in rows])
                measures.add("batch", (len(rows),))
        return taken

    def take_one(self, channel: Channel, queue: str) -> Any:
        """Take one message without becoming a consumer; None if there is none."""
        route = self._routes.find(queue)
        if route is None or route.is_temporary:
            return None
        watch = Watch(channel, queue, route, lambda _: None)
        for name in route.bus_names:
            while taken := self._take(watch, name, 1):
                message = self._read(channel, queue, taken[0])
                if message is not None:
                    return message
                self._refuse_all()
        return None

    def delayed(self, channel: Channel, amount: int) -> list[Any]:
        """Return delayed messages of the consumed queues, earliest first; they are not taken."""
        queues = [each.queue for each in self._watches.values() if not each.route.is_temporary]
        text = "select queue, data from broker.delayed(%s, %s)"
        messages = []
        for queue, data in self._link.run(text, (queues, amount)):
            try:
                raw = codec.decode(data, queue, "", False)
                messages.append(channel.Message(raw, channel=channel))
            except Exception as failure:  # noqa: BLE001 - hostile text may raise anything
                logger.info("message_unreadable", extra={"reason": repr(failure)})
        return messages

    def _recheck(self, now: float) -> None:
        self._rechecked = now
        used = [watch.route.id for watch in self._watches.values() if watch.route.expires_after]
        if used:
            self._link.run("select broker.touch(%s)", (used,))
        for watch in self._watches.values():
            watch.is_due = True
            watch.is_stale = watch.is_stale or not watch.route.is_temporary

    # Acks and rejections, from any thread.

    def ack(self, token: int) -> None:
        """Ack a message with the next poll."""
        self._leases.finish(token)

    def refuse(self, token: int, reason: str | None) -> None:
        """Dead-letter a message for this reason, or return it to its queue, with the next poll."""
        with self._guard:
            self._refused.append((token, reason))

    def give_back(self, tokens: Iterable[int]) -> None:
        """Return messages to their queue now; tokens that are not held are ignored."""
        with self._guard:
            self._refused += [(token, None) for token in tokens]
        self.flush()

    def flush(self) -> None:
        """Send pending acks and rejections."""
        if not self._link.is_closed:
            self._leases.flush(self._link)
            self._refuse_all()

    def _refuse_all(self) -> None:
        with self._guard:
            refused, self._refused = self._refused, []
        for token, reason in refused:
            given = {"delay": 0} if reason is None else {"error": reason, "dead_letter": True}
            try:
                if (lease := self._leases.release(token)) is not None:
                    self._link.call(calls.nack(lease, **given))
            except (psycopg.Error, BusError) as failure:
                if self._link.is_closed:
                    raise
                logger.warning("refusal_failed", extra={"reason": str(failure).strip()})


def _reason(failure: Exception) -> str:
    """Describe a failure with characters that PostgreSQL can store."""
    text = repr(failure)[:MAX_REASON_CHARACTERS].replace("\0", "")
    return text.encode(errors="replace").decode()
