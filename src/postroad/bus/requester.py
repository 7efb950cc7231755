"""Requests in threads: each request in progress has its own connection.

Connections are kept for the next request. An answer that arrives after its request timed out is
dropped by the next request on that connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from psycopg import Connection

from postroad.bus import request
from postroad.bus.decoding import Undecodable
from postroad.bus.hstore import Hstore
from postroad.bus.payload import Payload
from postroad.bus.request import Reply
from postroad.bus.session import is_disconnecting, parameters, run

# Longest wait of one call on the server; closing the bus takes at most this long.
MAX_WAIT_SECONDS = 1.0
AMOUNT = 100
# Minimum time between two immediate notifications of one queue.
NOTIFY_SECONDS = 0.002


class Requester:
    """Sends requests over connections that it opens as needed."""

    def __init__(self, dsn: str, announce: Callable[[str], None], *, notify: bool) -> None:
        self._dsn = dsn
        self._announce = announce
        self._notifies = notify
        self._notified_at: dict[str, float] = {}
        self._idle: list[Connection[Any]] = []
        self._lock = threading.Lock()

    def ask(
        self,
        queue: str,
        payload: Payload,
        data: object,
        headers: Hstore | None,
        properties: Hstore | None,
        timeout: timedelta,
    ) -> Reply:
        """Post a request and wait for its answer. Raises RequestTimedOut."""
        deadline = time.monotonic() + request.check_timeout(timeout)
        connection = self._take()
        try:
            reply_to = run(connection, request.reply_queue())
            notify = self._is_time_to_notify(queue)
            call = request.ask_many(
                queue, payload, [data], [headers], [properties], timeout, reply_to, notify=notify
            )
            [iid] = run(connection, call)
            if not notify:
                self._announce(queue)
            reply = self._wait(connection, iid, deadline)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        if reply is None:
            raise request.timed_out(queue, iid, timeout)
        return reply

    def close(self) -> None:
        """Close the idle connections; a second call does nothing."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection[Any]:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed and not is_disconnecting(connection):
                    return connection
                connection.close()
        connection = Connection.connect(self._dsn, **parameters(self._dsn, is_pooled=False))
        connection.execute(request.PREPARE_SESSION)
        return connection

    def _is_time_to_notify(self, queue: str) -> bool:
        """Notify immediately, because the caller waits; under load leave it to the notifier."""
        now = time.monotonic()
        if not self._notifies or now - self._notified_at.get(queue, 0.0) <= NOTIFY_SECONDS:
            return False
        self._notified_at[queue] = now
        return True

    def _wait(self, connection: Connection[Any], iid: str, deadline: float) -> Reply | None:
        while (left := deadline - time.monotonic()) > 0:
            wait = timedelta(seconds=min(left, MAX_WAIT_SECONDS))
            try:
                found = run(connection, request.replies(AMOUNT, wait))
            except Undecodable as error:
                # This may be the late answer to an earlier request.
                found, undecodable = request.readable(error)
                if iid in undecodable:
                    raise
            for reply in found:
                if reply.correlation == iid:
                    return reply
        return None
