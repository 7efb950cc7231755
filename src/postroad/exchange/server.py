"""A server: one root, one journal, one generation; any number of servers share root and journal.

Order of the start: lock the root, lock the journal (both shared), join (a new generation, after
those that died were removed), recover, serve. Order of the end: stop listening, finish the running
moves, record them, leave, release the locks.

A server counts as running while a session of it holds its lock in the journal. A dead server is
removed by the next server that starts or by the server that sweeps, and from then on the journal
refuses its calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from postroad.exchange.collector import FOREIGN_ALERT, RESTORED_ALERT, Collector
from postroad.exchange.copier import Copier
from postroad.exchange.errors import ExchangeError, RootForeign, RootLocked, TakenOver
from postroad.exchange.files import Storage, open_storage
from postroad.exchange.intake import Intake
from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.maintenance import Maintenance, Upkeep
from postroad.exchange.mover import Mover
from postroad.exchange.routes import Routes
from postroad.postgres.calls import call, select, value
from postroad.postgres.connections import parameters
from postroad.postgres.journal import KEEPALIVES
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.settings.exchange import ExchangeSettings
from postroad.web.server import Publish, WebServer

if TYPE_CHECKING:
    from postroad.exchange.objects import ObjectStorage

logger = logging.getLogger(__name__)

# A server of an older version takes this lock exclusively.
LOCK = "select pg_try_advisory_lock_shared(exchange._lock_class(), 1)"
REMOVE_KILLED = (
    "select exchange.leave(m.epoch) from exchange.member m where m.epoch = any(%s)"
    " and pg_try_advisory_xact_lock(exchange._lock_class() + 2, m.epoch::integer)"
)
ROOTS = "select array[s.root_id, s.second_root_id] from exchange.server s"
# A separate statement, because that of `take_over` does not see a server that it has waited for.
EARLIER = (
    "select m.epoch from exchange.member m"
    " where m.epoch < %s and %s in (m.root_id, m.second_root_id)"
)
OTHERS = "select m.epoch from exchange.member m where m.epoch <> %s"
# A running server may have lost its lock briefly. A server whose process has ended does not return.
SILENT = timedelta(seconds=5)
LOCK_PATIENCE_SECONDS = 10.0
ROOT_PATIENCE_SECONDS = 3.0
WATCH_SECONDS = 1.0
# A store that does not answer delays the shutdown by a few times this at most.
STOP_SECONDS = 3.0

# The generations of this process.
_joined: set[int] = set()


class ExchangeServer(Service):
    """Serves the exchange until it is stopped: on a port or a `listener`, or through `publish`."""

    def __init__(
        self,
        dsn: str,
        root: Path | str,
        settings: ExchangeSettings | None = None,
        *,
        port: int | None = None,
        is_pooled: bool = False,
        http: HttpSettings | None = None,
        publish: Publish | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        super().__init__("exchange")
        self.settings = settings or ExchangeSettings()
        port = self.settings.port if port is None else port
        self._place: dict[str, Any] = {"host": self.settings.host, "port": port, "http": http}
        self._place |= {"listener": listener, "publish": publish}
        self.web: WebServer | None = None
        self.mover: Mover | None = None
        self.intake: Intake | None = None
        self.journal: ExchangeJournal | None = None
        self._dsn = dsn
        self._storage = open_storage(root, self.settings, self.settings.second_root)
        self._served_seconds = 0.0
        self._runs: list[str] = []
        self._is_pooled = is_pooled

    @property
    def url(self) -> str:
        """Where it listens, once it is ready."""
        if self.web is None:
            raise RuntimeError("the exchange does not listen yet")
        return self.web.url

    async def run(self) -> None:
        """Lock, recover, serve."""
        try:
            for store in self._storage.stores:
                store.root_id = await self._open_root(store)
            await self._run()
        finally:
            self._storage.close()

    async def _open_root(self, store: Storage) -> uuid.UUID:
        """Lock a root. Raises RootLocked.

        A killed server keeps its lock until its last thread has returned from the disk.
        """
        allows_network = self.settings.allows_network_root
        async for is_last in _attempts(ROOT_PATIENCE_SECONDS):
            try:
                return await asyncio.to_thread(store.open_root, allows_network)
            except RootLocked:
                if is_last:
                    raise
        raise AssertionError

    async def _run(self) -> None:
        from postroad.exchange.web import create_app

        settings = self.settings
        objects = self._storage.objects
        patience = None if self._storage.has_folders else STOP_SECONDS
        threads = ThreadPoolExecutor(settings.file_threads, thread_name_prefix="exchange-file")
        self.journal = journal = ExchangeJournal(self._dsn, is_pooled=self._is_pooled)
        lock = await self._lock()
        try:
            is_first = await self._join(lock, journal)
            self._storage.owner = str(journal.epoch)
            mover = Mover(journal, self._storage, threads, settings.creates_databases)
            if is_first:
                await self._refuse_copy(lock, journal.epoch)
            if objects:
                if await value(lock, EARLIER, journal.epoch, objects.root_id) is None:
                    await self._claim(mover, objects)
                elif self._runs:
                    await self._wait_for_claim(mover, objects)
            self.mover, self.intake = mover, Intake(mover)
            maintenance = Maintenance(settings, mover)
            maintenance.signals = self.signals
            await maintenance.recover(is_first=is_first)
            await self.supervise(
                maintenance,
                # The server reports that it runs even if its files cannot be used.
                Upkeep("exchange heartbeat", mover, maintenance.seconds, maintenance.beat),
                Routes(mover),
            )
            if objects:
                await self.supervise(Collector(settings, mover, objects))
            if len(self._storage.stores) > 1:
                await self.supervise(Copier(settings, mover))
            app = create_app(settings, mover, self.intake)
            async with WebServer(app, **self._place) as self.web:
                self.announce_ready()
                logger.info("exchange_serves", extra={"epoch": journal.epoch})
                lock = await self._watch(lock, journal.epoch)
            journal.stop_repeating()
            await self.stop_supervised(patience)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await mover.close()
            with contextlib.suppress(psycopg.Error):
                await journal.call("leave", journal.epoch)
        finally:
            await self.stop_supervised(patience)
            with contextlib.suppress(psycopg.Error):
                await lock.close()
            await journal.close()
            # Unlike a file, an object that is written or removed later does no harm.
            await asyncio.to_thread(threads.shutdown, wait=patience is None, cancel_futures=True)

    async def _lock(self) -> psycopg.AsyncConnection[Any]:
        """Hold the journal's lock on a separate connection. Raises RootLocked."""
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            **parameters(self._dsn, application_name="postroad exchange lock", autocommit=True)
            | ({} if self._is_pooled else {"options": KEEPALIVES}),
        )
        async for _ in _attempts(LOCK_PATIENCE_SECONDS):
            if await value(connection, LOCK):
                return connection
        await connection.close()
        raise RootLocked(
            "a server of an older version serves this database's exchange",
            hint="stop it first: it serves alone",
        )

    async def _join(self, lock: psycopg.AsyncConnection[Any], journal: ExchangeJournal) -> bool:
        """Begin to serve with a new generation; return whether no server ran."""
        host = socket.gethostname()
        # The sessions of a server that was killed may take a moment to end.
        async for _ in _attempts(LOCK_PATIENCE_SECONDS, pause=0.02):
            rows = await select(lock, "exchange.remove_dead", SILENT)
            found = [(row["epoch"], row["holder"]) for row in rows]
            killed = [epoch for epoch, holder in found if _is_killed(epoch, holder, host)]
            if not killed:
                break
            await lock.execute(REMOVE_KILLED, (killed,))
        settings = self.settings
        timeouts = settings.started_timeout, settings.ready_timeout, settings.defer_delay
        shared_facts = (
            f"{host}:{os.getpid()}",
            *(timeout.total_seconds() for timeout in timeouts),
            *(settings.suspect_after, settings.failed_policy, settings.events_kept),
            self._storage.address,
        )
        root, *seconds = self._storage.stores
        async for is_last in _attempts(ROOT_PATIENCE_SECONDS):
            known = await value(lock, ROOTS)
            # A folder that is the only store is refused by the journal.
            checked = [one for one in self._storage.stores if seconds or one.objects]
            unknown = [one for one in checked if one.root_id not in known]
            foreign = [one for one in unknown if not one.is_new]
            if foreign and not is_last and not foreign[0].objects:
                continue
            if foreign:
                raise RootForeign(
                    f"{foreign[0].address} is the root of another journal",
                    hint="use a separate bucket, prefix or empty folder for each journal",
                )
            try:
                second = (fact for one in seconds for fact in (one.root_id, one.address))
                facts = root.root_id, *shared_facts, *second
                (shared,) = await select(lock, "exchange.take_over", *facts)
            except RootForeign as failure:
                if not unknown or (is_last and seconds):
                    raise
                if is_last:
                    marker = f'{{"root": "{known[0]}"}}'
                    raise RootForeign(
                        f"{self._storage.address} has no marker, and the journal has messages",
                        hint=f"if their objects are there, write {marker} to .root.json",
                    ) from failure
                for store in unknown:
                    if store.objects:
                        store.root_id = await self._open_root(store)
            else:
                journal.epoch, self._served_seconds = shared["epoch"], shared["served_seconds"]
                self._runs = shared["runs"]
                _joined.add(journal.epoch)
                return await value(lock, EARLIER, journal.epoch, root.root_id) is None
        raise AssertionError

    async def _refuse_copy(self, lock: psycopg.AsyncConnection[Any], epoch: int) -> None:
        """Raise RootLocked if servers of another journal, such as a copy of it, use the root.

        They are not among the servers of this journal; servers of this journal that are just
        starting soon will be.
        """
        facts = self._served_seconds, self._runs
        async for _ in _attempts(ROOT_PATIENCE_SECONDS):
            if await asyncio.to_thread(self._storage.is_alone, *facts):
                return
            if await value(lock, OTHERS, epoch):
                return
        raise RootLocked(
            f"servers of another database use the root {self._storage.address}",
            hint="a copy of a database needs a copy of the root: set --root to that copy",
        )

    async def _claim(self, mover: Mover, objects: ObjectStorage) -> None:
        """Mark the root as used by this journal, and report if the journal was restored."""
        facts = objects.root_id, self._served_seconds, self._runs, self.settings.orphan_age
        is_restored = await mover.in_thread(objects.claim, *facts)
        await mover.journal.call("alerts.clear", FOREIGN_ALERT)
        if is_restored:
            title = "the journal of the exchange is older than its object store"
            text = (
                "It was restored from a backup, or a copy of it has used the store. Objects without"
                f" a message are kept for {self.settings.orphan_age} from now on; to list them:"
                " postroad exchange check"
            )
            fields = RESTORED_ALERT, "exchange", "warning", title, text
            await mover.journal.call("alerts.raise", *fields)

    async def _wait_for_claim(self, mover: Mover, objects: ObjectStorage) -> None:
        """Wait until the first server, which may be just starting, has marked the root."""
        async for _ in _attempts(LOCK_PATIENCE_SECONDS):
            if await mover.in_thread(objects.is_marked_by, self._runs[0]):
                return
        raise RootLocked(f"no server of this journal has marked {self._storage.address}")

    async def _watch(
        self, lock: psycopg.AsyncConnection[Any], epoch: int
    ) -> psycopg.AsyncConnection[Any]:
        """Wait for the end; take the lock again when PostgreSQL was restarted."""
        while not await self.pause(WATCH_SECONDS):
            with contextlib.suppress(psycopg.Error):
                await lock.execute("select 1")
            if not lock.closed:
                continue
            try:
                lock = await self._lock()
                await call(lock, "exchange.hold", epoch)
            except RootLocked as taken:
                raise TakenOver("another server has taken over this exchange") from taken
            except (psycopg.Error, ExchangeError) as failure:
                # A connection without the lock must not be mistaken for one that holds it.
                await lock.close()
                if isinstance(failure, ExchangeError):
                    raise
                logger.info("lock_not_back_yet", extra={"reason": str(failure).strip()})
        return lock


async def _attempts(seconds: float, pause: float = 0.1) -> AsyncIterator[bool]:
    """Yield before each attempt, with whether it is the last one, until the time is up."""
    loop = asyncio.get_running_loop()
    deadline, is_last = loop.time() + seconds, False
    while not is_last:
        is_last = loop.time() > deadline
        yield is_last
        await asyncio.sleep(pause)


def _is_killed(epoch: int, holder: str, host: str) -> bool:
    """Return whether a server ran on this machine and its process is gone.

    A process in a container has the same number as its predecessor.
    """
    name, _, pid = holder.rpartition(":")
    if pid == str(os.getpid()):
        return name == host and epoch not in _joined
    return name == host and not Path(f"/proc/{pid}").exists()
