"""Consuming: looks for messages where it is due, hands them out, answers for them.

One object per consuming connection. It listens on the connection's own session; beside it run the
heartbeat of the leases and a share of the upkeep, each with a session of its own. `look` is called
by one thread at a time; answers may come from any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from kombu.exceptions import ChannelError

from postroad.broker import codec
from postroad.broker.leases import NACK, PARK, Leases, arrays
from postroad.broker.link import CHANNEL, Link
from postroad.broker.routes import Routes
from postroad.broker.upkeep import Upkeep
from postroad.broker.watch import Taken, Watch

if TYPE_CHECKING:
    from postroad.broker.channel import Channel

__all__ = ["Consumption"]

logger = logging.getLogger(__name__)

# Nothing depends on it but what a lost notice would leave lying.
RECHECK_SECONDS = 5.0
TEMPORARY_PORTION = 100

UNAWAIT = "select broker.unawait($1)"


class Consumption:
    """What one connection takes from the bus."""

    def __init__(self, dsn: str, link: Link, routes: Routes, ttl: timedelta) -> None:
        self._link = link
        self._routes = routes
        self._ttl_text = f"{ttl.total_seconds()} seconds"
        self._leases = Leases(dsn, ttl)
        self._dsn = dsn
        self._upkeep: Upkeep | None = None
        self._is_listening = False
        self._watches: dict[str, Watch] = {}
        self._guard = threading.Lock()
        self._refused: list[tuple[int, bool]] = []
        self._rechecked = 0.0

    # Consumers.

    def watch(
        self,
        channel: Channel,
        queue: str,
        consumer_tag: str,
        deliver: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Take messages of this queue from now on."""
        self._link.run("select broker.adopt_queue(%s)", (queue,))
        self._routes.forget(queue)
        route = self._routes.find(queue)
        if route is None:
            raise ChannelError(
                f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.basic_consume", "404"
            )
        if not self._is_listening:
            self._link.listen(CHANNEL, self._heard)
            self._is_listening = True
        self._watches[consumer_tag] = Watch(channel, queue, route, deliver)
        # Who only waits for a reply leaves the upkeep to those who work.
        if self._upkeep is None and not route.is_temporary:
            self._upkeep = Upkeep(self._dsn)
            self._upkeep.start()

    def unwatch(self, consumer_tag: str) -> None:
        """Take no more."""
        watch = self._watches.pop(consumer_tag, None)
        if watch is not None and watch.taken:
            self.give_back(token for _, _, token, _ in watch.taken)
            watch.taken.clear()
        if watch is not None and watch.is_awaited and not self._link.is_closed:
            self._link.run_prepared(UNAWAIT, str(watch.route.id))
        if all(each.route.is_temporary for each in self._watches.values()):
            self._end_upkeep()

    def _end_upkeep(self) -> None:
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            upkeep.stop()

    def is_watched(self, queue: str) -> bool:
        """Tell whether somebody here consumes from the queue."""
        return any(watch.queue == queue for watch in self._watches.values())

    def _heard(self, payload: str) -> None:
        name = payload.removesuffix("!")
        for watch in self._watches.values():
            if watch.route.bus_name == name:
                watch.is_due = True
                watch.is_stale = watch.is_stale or name != payload

    def close(self) -> None:
        """Answer what is to be answered, and end the threads."""
        try:
            self.answer()
        finally:
            self._leases.close()
            self._end_upkeep()

    # Looking.

    def next_look(self) -> float:
        """Tell in how many seconds somebody is due for a look without being told."""
        if any(watch.taken for watch in self._watches.values()):
            return 0.0
        now = time.monotonic()
        looks = [self._rechecked + RECHECK_SECONDS]
        looks += [
            watch.room_at if watch.is_due else watch.look_at
            for watch in self._watches.values()
            if self._room(watch)
        ]
        return max(min(looks) - now, 0.0)

    def look(self) -> bool:
        """Look wherever it is due and hand out what is there; tell whether anything was."""
        if self._refused:
            self._refuse_all()
        now = time.monotonic()
        if now - self._rechecked > RECHECK_SECONDS:
            self._recheck(now)
        has_come = False
        for watch in list(self._watches.values()):
            if watch.taken:
                self._hand_out(watch)
                has_come = True
            if watch.is_stale:
                self._refresh(watch)
            room = self._room(watch)
            if room and (watch.is_due or watch.look_at <= now) and watch.is_worth(room, now):
                has_come = self._look_into(watch, room) or has_come
            elif watch.is_awaited and not room:
                self._link.run_prepared(UNAWAIT, str(watch.route.id))
                watch.rests_not()
        return has_come

    def _room(self, watch: Watch) -> int:
        if watch.route.is_temporary:
            return TEMPORARY_PORTION
        return int(watch.channel.qos.room())

    def _look_into(self, watch: Watch, room: int) -> bool:
        found = 0
        watch.looks()
        for name in watch.route.bus_names:
            taken = self._take(watch, name, room - found)
            found += len(taken)
            watch.taken.extend(taken)
            self._hand_out(watch)
            if found >= room:
                break
        watch.found(found, room)
        return found > 0

    def _hand_out(self, watch: Watch) -> None:
        """Hand out what was taken. A handler that raises leaves the rest for the next look."""
        while watch.taken:
            iid, data, token, is_redelivered = watch.taken.popleft()
            try:
                message = codec.decode(
                    data, watch.queue, str(token) if token else iid, is_redelivered
                )
            except (ValueError, TypeError, KeyError, AttributeError) as wrong:
                # Nobody can read it, now or later: it goes to the dead, and the next one comes.
                logger.warning("message_unreadable", extra={"iid": iid, "reason": str(wrong)})
                self.refuse(token, requeue=False)
                continue
            watch.deliver(message)

    def _take(self, watch: Watch, name: str, amount: int) -> list[Taken]:
        """Acknowledge, say that we wait, and take, all in one call.

        Its commit does not wait for the disk: a lease or an ack that a crash of the server forgets
        is done again.
        """
        settled = self._leases.take_settled()
        must_await = watch.is_short and not watch.is_awaited
        text, parameters = self._taking(watch, name, amount)
        first = "set_config('synchronous_commit', 'off', true)"
        if settled:
            count = len(parameters)
            first = f"mbus.ackn(${count + 1}, ${count + 2}), {first}"
            parameters += arrays(settled)
        if must_await:
            first = f"{first}, broker.await({watch.route.id})"
        try:
            rows = self._link.run_prepared(
                f"select l.*, a.* from (select {first}) a left join lateral ({text}) l on true",
                *parameters,
            )
        except psycopg.errors.UndefinedFunction:
            # The queue was deleted under us; the acks are told again.
            self._leases.unsettled(settled)
            watch.is_stale = True
            return []
        except BaseException:
            self._leases.unsettled(settled)
            raise
        if settled:
            self._leases.acknowledged(settled, rows[0][4])
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
            text = "select iid, data, 0, 1 from mbus.consume_temporary_text($1, $2)"
            return text, [name, str(amount)]
        return _leasing(name), [str(amount), self._ttl_text]

    def take_one(self, queue: str) -> dict[str, Any] | None:
        """Take one message without consuming for good."""
        route = self._routes.find(queue)
        if route is None or route.is_temporary:
            return None
        for name in route.bus_names:
            rows = self._link.run_prepared(_leasing(name), "1", self._ttl_text)
            for iid, data, token, attempt in rows:
                self._leases.hold([(str(iid), int(token or 0))])
                return codec.decode(str(data), queue, str(token), attempt != "1")
        return None

    def _recheck(self, now: float) -> None:
        """Look everywhere once in a while, and say that the queues are in use."""
        self._rechecked = now
        used = [watch.route.id for watch in self._watches.values() if watch.route.expires_after]
        if used:
            self._link.run("select broker.touch(%s)", (used,))
        for watch in self._watches.values():
            watch.is_due = True
            watch.is_stale = watch.is_stale or not watch.route.is_temporary

    def _refresh(self, watch: Watch) -> None:
        self._routes.forget(watch.queue)
        route = self._routes.find(watch.queue)
        watch.is_stale = False
        if route is None:
            # Deleted by somebody; the recheck sees whether it was made again.
            watch.is_due = False
        else:
            watch.route = route

    # Answering. From any thread.

    def settle(self, token: int) -> None:
        """Take note of an ack; the bus is told with the next look."""
        self._leases.settle(token)

    def refuse(self, token: int, *, requeue: bool) -> None:
        """Take note of a refusal."""
        with self._guard:
            self._refused.append((token, requeue))

    def give_back(self, tokens: Iterable[int]) -> None:
        """Let others have these at once."""
        if not self._link.is_closed:
            self.answer()
            self._leases.give_back(self._link, tokens)

    def answer(self) -> None:
        """Tell the bus everything that it has not been told."""
        if not self._link.is_closed:
            self._leases.flush(self._link)
            self._refuse_all()

    def _refuse_all(self) -> None:
        with self._guard:
            refused, self._refused = self._refused, []
        for token, requeue in refused:
            iid = self._leases.release(token)
            if iid is None:
                continue
            try:
                if requeue:
                    self._link.run(NACK, (iid, token))
                else:
                    self._link.run(PARK, (iid, token, "rejected by the consumer"))
            except psycopg.DatabaseError as failure:
                if self._link.is_closed:
                    raise
                logger.warning("refusal_failed", extra={"reason": str(failure).strip()})


def _leasing(name: str) -> str:
    return f"select iid, data, token, attempt from mbus.lease_{name}_by_default($1, $2)"
