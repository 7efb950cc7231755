"""A running exchange for tests and examples: a real server in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Self

from postroad.exchange import operations
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.settings import ExchangeSettings

START_TIMEOUT_SECONDS = 30.0


class RunningExchange:
    """An exchange on a database that has its schema, with its folders in `root`.

    Use it with `with`, or call `start` and `stop`. `settings` shortens time-outs and the like.
    """

    def __init__(
        self, dsn: str, root: Path | str, settings: ExchangeSettings | None = None
    ) -> None:
        self._dsn = dsn
        self._root = Path(root)
        self._settings = settings or ExchangeSettings()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: ExchangeServer | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        if self._server is None:
            raise RuntimeError("the exchange was not started")
        return self._server.url

    def token(self, client: str, *, is_admin: bool = False) -> str:
        """Add a client that may send to and take from all databases, and return its token."""
        made = run_blocking(
            self._dsn, operations.add_client, client, is_admin=is_admin, databases=None
        )
        return made.token

    def start(self) -> Self:
        """Start it and wait until it serves; raise what it failed with."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_TIMEOUT_SECONDS)
        return self

    async def _start(self) -> None:
        # Made inside the loop that it will run in.
        self._server = ExchangeServer(self._dsn, self._root, self._settings, port=0)
        await self._server.start()
        await self._server.ready()

    def stop(self) -> None:
        """Stop it in order; a second call does nothing."""
        if self._thread is None or self._server is None:
            return
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
