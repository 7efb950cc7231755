"""The server: one root, one journal, one generation.

Order of the start: lock the root, lock the journal, take over (a new generation, after all calls of
the old one have ended), recover, serve. Order of the end: stop listening, finish the running moves,
record them, release the locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from postroad.exchange.databases import Databases
from postroad.exchange.errors import RootLocked, TakenOver
from postroad.exchange.files import Storage
from postroad.exchange.intake import Intake
from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.maintenance import Maintenance
from postroad.exchange.mover import Mover
from postroad.exchange.root import Root
from postroad.exchange.routes import Routes
from postroad.exchange.uptime import Uptime
from postroad.postgres.connections import network_parameters
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.settings.exchange import ExchangeSettings
from postroad.web.server import WebServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

LOCK = "select pg_try_advisory_lock(exchange._lock_class(), 1)"
LOCK_PATIENCE_SECONDS = 10.0
ROOT_PATIENCE_SECONDS = 3.0
WATCH_SECONDS = 1.0


class ExchangeServer(Service):
    """Serves the exchange until it is stopped: on a port of its own, or through `publish`."""

    def __init__(
        self,
        dsn: str,
        root: Path,
        settings: ExchangeSettings | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        is_pooled: bool = False,
        http: HttpSettings | None = None,
        publish: Callable[[ASGIApp], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        super().__init__("exchange")
        self._http = http
        self._publish = publish
        self.settings = settings or ExchangeSettings()
        self.web: WebServer | None = None
        self.mover: Mover | None = None
        self.intake: Intake | None = None
        self.journal: ExchangeJournal | None = None
        self._dsn = dsn
        self._root = Root(root, allows_network=self.settings.allows_network_root)
        self._host = self.settings.host if host is None else host
        self._port = self.settings.port if port is None else port
        self._is_pooled = is_pooled

    @property
    def url(self) -> str:
        """Where it listens, once it is ready."""
        if self.web is None:
            raise RuntimeError("the exchange does not listen yet")
        return self.web.url

    async def run(self) -> None:
        """Lock, recover, serve."""
        root_id = await self._open_root()
        try:
            await self._run(root_id)
        finally:
            self._root.close()

    async def _open_root(self) -> uuid.UUID:
        """Lock the root. Raises RootLocked.

        A killed server keeps its lock until its last thread has returned from the disk.
        """
        deadline = asyncio.get_running_loop().time() + ROOT_PATIENCE_SECONDS
        while True:
            try:
                return self._root.open()
            except RootLocked:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.1)

    async def _run(self, root_id: uuid.UUID) -> None:
        from postroad.exchange.web import create_app

        settings = self.settings
        threads = ThreadPoolExecutor(settings.file_threads, thread_name_prefix="exchange-file")
        self.journal = journal = ExchangeJournal(self._dsn, is_pooled=self._is_pooled)
        lock = await self._lock()
        try:
            uptime = Uptime(await self._take_over(journal, root_id))
            mover = Mover(journal, Storage(self._root.path), threads)
            databases = Databases(journal, mover, creates=settings.creates_databases)
            intake = Intake(journal, mover, databases)
            self.mover, self.intake = mover, intake
            maintenance = Maintenance(settings, journal, uptime, mover, databases)
            maintenance.signals = self.signals
            await maintenance.recover()
            await self.supervise(maintenance, Routes(journal, mover, databases))
            app = create_app(settings, journal, uptime, mover, databases, intake)
            async with self._serving(app):
                self.announce_ready()
                logger.info("exchange_serves", extra={"epoch": journal.epoch})
                lock = await self._watch(lock)
            journal.stop_repeating()
            await self.stop_supervised()
            await mover.close()
        finally:
            await self.stop_supervised()
            with contextlib.suppress(psycopg.Error):
                await lock.close()
            await journal.close()
            threads.shutdown(wait=True, cancel_futures=True)

    def _serving(self, app: ASGIApp) -> AbstractAsyncContextManager[Any]:
        if self._publish is not None:
            return self._publish(app)
        self.web = WebServer(app, host=self._host, port=self._port, http=self._http)
        return self.web

    async def _lock(self) -> psycopg.AsyncConnection[Any]:
        """Hold the journal's lock on a connection of its own. Raises RootLocked."""
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            **network_parameters(self._dsn)
            | {"autocommit": True, "application_name": "postroad exchange lock"},
        )
        deadline = asyncio.get_running_loop().time() + LOCK_PATIENCE_SECONDS
        while True:
            cursor = await connection.execute(LOCK)
            row = await cursor.fetchone()
            if row and row[0]:
                return connection
            # The session of a server that was killed may take a moment to end.
            if asyncio.get_running_loop().time() > deadline:
                await connection.close()
                raise RootLocked(
                    "another server serves this database's exchange",
                    hint="stop it first, or use another database",
                )
            await asyncio.sleep(0.1)

    async def _take_over(self, journal: ExchangeJournal, root_id: uuid.UUID) -> float:
        """Begin a new generation; return the uptime of those before."""
        settings = self.settings
        timeouts = settings.started_timeout, settings.ready_timeout, settings.defer_delay
        (row,) = await journal.select(
            "take_over",
            root_id,
            f"{socket.gethostname()}:{os.getpid()}",
            *(timeout.total_seconds() for timeout in timeouts),
            *(settings.suspect_after, settings.failed_policy, settings.events_kept),
            str(self._root.path),
        )
        journal.epoch = row["epoch"]
        return float(row["served_seconds"])

    async def _watch(self, lock: psycopg.AsyncConnection[Any]) -> psycopg.AsyncConnection[Any]:
        """Wait for the end; take the lock again when PostgreSQL was restarted."""
        while not await self.pause(WATCH_SECONDS):
            if not lock.closed:
                with contextlib.suppress(psycopg.Error):
                    await lock.execute("select 1")
                if not lock.closed:
                    continue
            try:
                lock = await self._lock()
            except psycopg.Error as failure:
                logger.info("lock_not_back_yet", extra={"reason": str(failure).strip()})
            except RootLocked as taken:
                raise TakenOver("another server has taken over this exchange") from taken
        return lock
