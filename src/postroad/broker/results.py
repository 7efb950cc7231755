"""Results of tasks in the same database: `result_backend="mbus://…"`.

A result is one row, written by one call that never overwrites a success. A chord counts its parts
by name, so a part that ran twice after a crash is counted once, and its body is sent again only if
the worker died before it could record that it was sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from celery import states
from celery.backends.asynchronous import AsyncBackendMixin
from celery.backends.base import BaseKeyValueStoreBackend, _create_chord_error_with_cause
from celery.canvas import maybe_signature
from celery.exceptions import ChordError
from celery.result import AsyncResult, GroupResult, allow_join_result
from kombu.utils.encoding import bytes_to_str
from psycopg.rows import TupleRow

from postroad.broker.address import database_of
from postroad.broker.link import Link
from postroad.broker.result_consumer import ResultConsumer, bucket_of
from postroad.bus.reconnect import TRANSIENT, Backoff

logger = logging.getLogger(__name__)

RETRY_SECONDS = 60.0

Statement = tuple[str, Sequence[object]]


class ResultBackend(AsyncBackendMixin, BaseKeyValueStoreBackend):  # type: ignore[misc]
    """Celery's results as rows of schema `broker`."""

    key_t = staticmethod(bytes_to_str)
    supports_native_join = True
    supports_autoexpire = True
    persistent = True

    def __init__(self, *args: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, url=url, **kwargs)
        self._link: Link | None = None
        given = self.app, self.accept, self._pending_results, self._pending_messages
        self.result_consumer = ResultConsumer(self, *given)

    def open_link(self, purpose: str) -> Link:
        """Open a session on the database of the results."""
        return Link(database_of(self.url or "mbus:///"), purpose)

    def _run(self, *statements: Statement) -> list[list[TupleRow]]:
        """Run idempotent statements, each a transaction; retry while the database is down."""
        backoff, deadline = Backoff(), time.monotonic() + RETRY_SECONDS
        while True:
            try:
                if self._link is None or self._link.is_closed:
                    self._link = self.open_link("results")
                if len(statements) == 1:
                    return [self._link.run(*statements[0])]
                return self._link.run_apart(statements)
            except TRANSIENT as failure:
                if self._link is not None:
                    self._link.close()
                    self._link = None
                if time.monotonic() > deadline:
                    raise
                logger.warning("results_interrupted", extra={"reason": str(failure).strip()})
                time.sleep(backoff.next_seconds())

    def get(self, key: str) -> bytes | None:
        """Return a value, None if it does not exist."""
        if self.result_consumer.is_absent(key):
            return None
        [value] = self.mget([key])
        return value

    def mget(self, keys: Iterable[str]) -> list[bytes | None]:
        """Return the values of many keys by one call, in their order."""
        wanted = list(keys)
        [rows] = self._run(("select key, value from broker.fetch(%s)", (wanted,)))
        found: dict[str, bytes] = dict(rows)
        return [found.get(key) for key in wanted]

    def get_many(
        self, task_ids: Iterable[str], max_iterations: int | None = None, **kwargs: Any
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Return the stored results; with more than one iteration, wait for the others."""
        if max_iterations != 1:
            yield from super().get_many(set(task_ids), max_iterations=max_iterations, **kwargs)
            return
        ids = list(task_ids)
        for task_id, value in zip(ids, self.mget(map(self.get_key_for_task, ids)), strict=True):
            if value is not None:
                meta = self.decode_result(value)
                if meta["status"] in states.READY_STATES:
                    yield task_id, meta

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value that is not the result of a task."""
        self._set_with_state(key, value, states.SUCCESS)

    def _set_with_state(self, key: str, value: str | bytes, state: str) -> None:
        data = value.encode() if isinstance(value, str) else value
        self._run(
            ("select broker.store(%s, %s, %s, %s)", (key, state, data, self._ttl(self.expires))),
            ("select broker.announce(%s, %s)", (bucket_of(key), key)),
        )

    def delete(self, key: str) -> None:
        """Delete a value."""
        self._run(("select broker.forget(%s)", ([key],)))

    def expire(self, key: str, value: float | None) -> None:
        """Set how long a value is kept from now on."""
        self._run(("select broker.expire(%s, %s)", ([key], self._ttl(value))))

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any, request: Any, **_: Any
    ) -> Any:
        meta = self._get_result_meta(result, state, traceback, request)
        meta["task_id"] = bytes_to_str(task_id)
        # Without reading the state first: the database does not overwrite a success.
        self._set_with_state(self.get_key_for_task(task_id), self.encode(meta), state)
        return result

    def cleanup(self) -> None:
        """Remove expired values; workers on `mbus://` also do so regularly."""
        while True:
            [[[count]]] = self._run(("select broker.clear_results()", ()))
            if not count:
                return

    @staticmethod
    def _ttl(seconds: float | None) -> timedelta | None:
        return timedelta(seconds=seconds) if seconds else None

    def apply_chord(self, header_result_args: Any, body: Any, **_: Any) -> None:  # noqa: ARG002
        """Store the tasks of the header; their number follows with `set_chord_size`."""
        self.ensure_chords_allowed()
        header = self.app.GroupResult(*header_result_args)
        header.save(backend=self)
        self.set_chord_size(header.id, 0)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store how many parts end before the body is sent; Celery calls it before the last one."""
        self.set(self.get_key_for_group(group_id, ".s"), str(chord_size))

    def on_chord_part_return(self, request: Any, *_: Any, **__: Any) -> None:
        """Count a part that has ended; with the last one, send the body."""
        group_id = request.group
        if not group_id or not request.chord:
            return
        key = self.get_key_for_group(group_id)
        is_complete = self._end_part(key, request, None)
        parts = None
        if is_complete is None:
            # An earlier version has published the chord without a size.
            parts = self._header(request)
            if parts is None:
                return
            is_complete = self._end_part(key, request, len(parts))
        if not is_complete:
            return
        parts = parts or self._header(request)
        if parts is not None:
            self._send_body(request, parts)
        self._run(("select broker.end_chord(%s, %s)", (key, self._ttl(self.chord_expires))))
        if parts is not None:
            parts.delete()

    def _end_part(self, key: str, request: Any, size: int | None) -> bool | None:
        given = key, request.id, size, self._ttl(self.chord_expires)
        [[[is_complete]]] = self._run(("select broker.end_chord_part(%s, %s, %s, %s)", given))
        return is_complete  # type: ignore[no-any-return]

    def _header(self, request: Any) -> GroupResult | None:
        parts = GroupResult.restore(request.group, backend=self)
        if parts is None:
            logger.error("chord_header_lost", extra={"group_id": request.group})
            body = maybe_signature(request.chord, app=self.app)
            self.chord_error_from_stack(body, ChordError(f"group {request.group} is gone"))
        return parts

    def _send_body(self, request: Any, parts: GroupResult) -> None:
        body = maybe_signature(request.chord, app=self.app)
        values = None
        try:
            values = self._join(parts)
            self.app.amqp._retry_publish(body.delay, values)
        except Exception as failure:
            event, reason = "chord_body_not_sent", f"Callback error: {failure!r}"
            if values is None:
                culprit = next((part for part in parts.results if part.failed()), None)
                reason = f"Dependency {culprit.id} raised {failure!r}" if culprit else repr(failure)
                event = "chord_part_failed"
            logger.exception(event, extra={"group_id": request.group})
            error = _create_chord_error_with_cause(message=reason, original_exc=failure)
            self.chord_error_from_stack(callback=body, exc=error)

    def _join(self, parts: GroupResult) -> list[Any]:
        """Return the values of completed parts, by one query. Raises the error of a failed part."""
        tasks = {part.id: part for part in parts.results if isinstance(part, AsyncResult)}
        for task_id, meta in self.get_many(tasks, max_iterations=1):
            tasks[task_id]._maybe_set_cache(meta)
        timeout = self.app.conf.result_chord_join_timeout
        with allow_join_result():
            # A part that was read is not fetched again; a nested group is joined by Celery.
            if all(part._cache for part in tasks.values()) and len(tasks) == len(parts.results):
                return [part.get(timeout=timeout) for part in parts.results]
            return list(parts.join_native(timeout=timeout, propagate=True))

    def close(self) -> None:
        """End the sessions; the next call opens them again."""
        self.result_consumer.stop()
        if self._link is not None:
            self._link.close()
            self._link = None

    def on_after_fork(self) -> None:
        """Drop the session of the parent process."""
        self._link = None

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        state = {"expires": self.expires, "url": self.url, **(kwargs or {})}
        return super().__reduce__(args, state)
