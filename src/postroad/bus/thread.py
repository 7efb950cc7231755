"""A `Service` for threads: start, ready, stop, with the same promises."""

from __future__ import annotations

import logging
import threading
from typing import Self

__all__ = ["ThreadService"]

logger = logging.getLogger(__name__)


class ThreadService:
    """Something that runs in a thread of its own until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._is_ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Do the work until `self.stopping` is set. Written by the subclass."""
        raise NotImplementedError

    def announce_ready(self) -> None:
        """Say, from inside `run()`, that the service now does its work."""
        self._is_ready.set()

    def start(self) -> None:
        """Begin to run in the background; a second call does nothing."""
        if self._thread is None and not self.stopping.is_set():
            self._thread = threading.Thread(target=self._guarded, name=self.name, daemon=True)
            self._thread.start()

    def ready(self) -> None:
        """Wait until the service does its work; raise what it failed with if it never will."""
        if self._thread is None:
            raise RuntimeError(f"{self.name} was not started")
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask the service to leave and wait until it has left."""
        self.stopping.set()
        self.join()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the service has ended; return whether it has. Raises what it failed with."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return not self.is_running

    def pause(self, seconds: float) -> bool:
        """Wait that long or until the service is to stop; return whether it is to stop."""
        return self.stopping.wait(seconds)

    @property
    def is_running(self) -> bool:
        """Whether the service has been started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as failure:
            logger.exception("service_failed", extra={"service": self.name})
            self._failure = failure
        finally:
            # Whoever waits for a service that ended early must not wait for ever.
            self._is_ready.set()

    def __enter__(self) -> Self:
        self.start()
        self.ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
