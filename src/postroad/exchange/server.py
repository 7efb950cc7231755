"""The server: one root, one journal, one generation, HTTP in front.

Order of the start: lock the root, lock the journal, take over (a new generation, after all calls of
the old one have ended), recover, serve. Order of the end: stop listening, finish what is under way,
send the marks, let the locks go.
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

from postroad.exchange.desk import Desk
from postroad.exchange.errors import ExchangeError, RootLocked, TakenOver, translate
from postroad.exchange.files import Storage
from postroad.exchange.marks import Marks
from postroad.exchange.placement import Placement
from postroad.exchange.root import Root
from postroad.exchange.routes import Routes
from postroad.exchange.served_time import ServedTime
from postroad.exchange.upkeep import Upkeep, recover
from postroad.postgres.connections import network_parameters
from postroad.postgres.journal import Journal
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.settings.exchange import ExchangeSettings
from postroad.web import WebServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["ExchangeServer"]

logger = logging.getLogger(__name__)

LOCK = "select pg_try_advisory_lock(exchange._lock_class(), 1)"
TAKE_OVER = (
    "select (s).epoch, (s).served_seconds from exchange.take_over(p_root_id => %s, p_holder => %s,"
    " p_started_timeout => %s, p_ready_timeout => %s, p_defer_delay => %s, p_suspect_after => %s,"
    " p_failed_policy => %s, p_events_kept => %s, p_root_path => %s) s"
)
JOURNAL_CONNECTIONS = 8
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
        self.desk: Desk | None = None
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

        A server that was killed keeps its lock until the disk lets its last thread go.
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

        threads = ThreadPoolExecutor(self.settings.file_threads, thread_name_prefix="exchange-file")
        journal = Journal(
            self._dsn,
            ExchangeError,
            application_name="postroad exchange",
            connections=JOURNAL_CONNECTIONS,
            is_pooled=self._is_pooled,
        )
        lock = await self._lock()
        try:
            await journal.open()
            epoch, served = await self._take_over(lock, root_id)
            storage = Storage(self._root.path)
            desk = Desk(
                settings=self.settings,
                journal=journal,
                storage=storage,
                threads=threads,
                placement=Placement(storage, threads),
                marks=Marks(journal, epoch),
                time=ServedTime(served),
                epoch=epoch,
            )
            self.desk = desk
            await recover(desk)
            upkeep = Upkeep(desk)
            upkeep.signals = self.signals
            await self.supervise(upkeep, Routes(desk))
            async with self._serving(create_app(desk)):
                self.announce_ready()
                logger.info("exchange_serves", extra={"epoch": epoch})
                lock = await self._watch(lock)
            await self.stop_supervised()
            await desk.placement.close()
            await desk.marks.close()
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

    async def _take_over(
        self, connection: psycopg.AsyncConnection[Any], root_id: uuid.UUID
    ) -> tuple[int, float]:
        settings = self.settings
        holder = f"{socket.gethostname()}:{os.getpid()}"
        try:
            cursor = await connection.execute(
                TAKE_OVER,
                (
                    root_id,
                    holder,
                    settings.started_timeout.total_seconds(),
                    settings.ready_timeout.total_seconds(),
                    settings.defer_delay.total_seconds(),
                    settings.suspect_after,
                    settings.failed_policy,
                    settings.events_kept,
                    str(self._root.path),
                ),
            )
        except psycopg.Error as failure:
            raise (translate(failure) or failure) from failure
        row = await cursor.fetchone()
        if row is None:
            raise RuntimeError("the journal has no server row")
        return row[0], row[1]

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
