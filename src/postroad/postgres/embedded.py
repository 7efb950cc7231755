"""The embedded server: a PostgreSQL in the data folder, shared by all processes that use it.

```
absent ──initdb──> stopped ──first user──> running ──last user leaves──> stopped
                      ^                       │
                      └── killed or crashed ──┘   next user, or revive(), recovers from the log
```

A user is a process that holds the shared users' lock, which ends with the process: a killed user
neither keeps the server alive nor stops it. Starting and stopping happen under the control lock, so
that two processes never interfere. A server whose last user was killed keeps running; the next
user to leave stops it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Self

from psycopg.conninfo import make_conninfo

from postroad.postgres.binaries import find_binaries
from postroad.postgres.cluster import SUPERUSER, Cluster
from postroad.postgres.connections import create_database
from postroad.postgres.errors import ServerInUse, ServerNotStarted
from postroad.postgres.locks import control_lock, open_lock, share_lock, try_lock
from postroad.postgres.postmaster import (
    Postmaster,
    processes_in,
    read_postmaster,
    release_stale_pid,
)
from postroad.postgres.server_user import (
    SYSTEM_FOLDER,
    data_folder_default,
    make_data_folder,
    server_user,
)
from postroad.service import Service

if TYPE_CHECKING:
    from postroad.settings import Settings

logger = logging.getLogger(__name__)

START_TIMEOUT_DEFAULT = timedelta(minutes=2)
WATCH_SECONDS = 1.0
DATABASE = "postroad"
# Also names the socket; without TCP it cannot collide, because no other server uses the folder.
SOCKET_PORT = 5432
# Each service of `postroad up` has its own pool, and there are three more databases.
MAX_CONNECTIONS = 400


@dataclass
class EmbeddedServer:
    """One user of the embedded server; a context manager.

    `configuration` overrides options of postgresql.conf and applies if this user starts the server.
    """

    folder: Path | None = None
    bin_folder: Path | None = None
    port: int | None = None
    keep_running: bool = False
    start_timeout: timedelta = START_TIMEOUT_DEFAULT
    configuration: Mapping[str, str] = field(default_factory=dict)

    _users: int | None = field(default=None, init=False, repr=False)
    _running: Postmaster | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> EmbeddedServer:
        """Return the server that the settings describe, not started."""
        embedded = settings.embedded
        return cls(
            settings.data_folder,
            bin_folder=embedded.bin_folder,
            port=embedded.port,
            keep_running=embedded.keep_running,
            start_timeout=embedded.start_timeout,
            configuration={
                "shared_buffers": embedded.shared_buffers,
                "max_connections": str(MAX_CONNECTIONS),
            },
        )

    def start(self) -> str:
        """Become a user of the server, creating and starting it as needed; return its DSN.

        Raises BinariesNotFound, ServerUserMissing, DataFolderRefused or ServerNotStarted.
        """
        if self._users is None:
            with self._control():
                self._ensure_running()
                self._users = open_lock(self.cluster.home / "users.lock")
                share_lock(self._users)
        return self.dsn()

    def stop(self) -> None:
        """Stop being a user; the last one stops the server. A second call does nothing."""
        if self._users is None:
            return
        with self._control():
            if try_lock(self._users) and not self.keep_running:
                self._stop_server()
            os.close(self._users)
            self._users = self._running = None

    def revive(self) -> bool:
        """Start the server again if it has died; return whether it was started."""
        if self.is_running:
            return False
        with self._control():
            # Another process may have started it before this one got the lock.
            if read_postmaster(self.cluster.data) is not None:
                return False
            logger.warning("embedded_server_died", extra={"folder": str(self.cluster.home)})
            self._ensure_running()
        return True

    def halt(self) -> bool:
        """Stop an unused server; return whether it ran. Raises ServerInUse."""
        home = self.cluster.home
        if not home.exists():
            return False
        with self._control():
            if not self.is_running:
                return False
            users = open_lock(home / "users.lock")
            try:
                if not try_lock(users):
                    hint = "stop the processes that use it first"
                    raise ServerInUse(f"the server in {home} is in use", hint=hint)
                self._stop_server()
            finally:
                os.close(users)
        return True

    def dsn(self, database: str = DATABASE) -> str:
        """Return the DSN of a database of the running server."""
        if self._running is None:
            raise ServerNotStarted("this server was not started")
        host, port = str(self._running.socket_folder), self._running.port
        return make_conninfo("", host=host, port=port, user=SUPERUSER, dbname=database)

    @property
    def is_running(self) -> bool:
        """Whether a postmaster runs on the data directory."""
        return read_postmaster(self.cluster.data) is not None

    @cached_property
    def home(self) -> Path:
        """The folder of the server; found without the programs of PostgreSQL."""
        folder = (self.folder or data_folder_default()).absolute()
        wanted = folder / "postgres"
        if server_user().can_reach(wanted):
            return wanted
        name = hashlib.sha256(str(wanted).encode()).hexdigest()[:12]
        home = SYSTEM_FOLDER / "folders" / f"postgres-{name}"
        facts = {"folder": str(folder), "instead": str(home)}
        logger.warning("data_folder_unreachable", extra=facts)
        return home

    @cached_property
    def cluster(self) -> Cluster:
        """The data directory and its surroundings."""
        user = server_user()
        binaries = find_binaries(self.bin_folder)
        if not user.can_reach(binaries.folder):
            make_data_folder(SYSTEM_FOLDER)
            with control_lock(SYSTEM_FOLDER / "binaries.lock", 120):
                binaries = binaries.copy_to(SYSTEM_FOLDER / "binaries")
        return Cluster(self.home, binaries, user)

    def _control(self) -> AbstractContextManager[None]:
        self.cluster.make_folders()
        return control_lock(self.cluster.home / "control.lock", self.start_timeout.total_seconds())

    def _ensure_running(self) -> None:
        cluster = self.cluster
        running = read_postmaster(cluster.data)
        if running is None or not running.is_ready:
            cluster.create(must_sync=self.configuration.get("fsync") != "off")
            if running is None:
                cluster.configure(self._options())
                self._start_server()
            running = self._wait_until_ready()
        self._running = running
        create_database(self.dsn(), DATABASE)

    def _options(self) -> dict[str, str]:
        return {
            "unix_socket_directories": str(self.cluster.socket_folder),
            "unix_socket_permissions": "0700",
            "listen_addresses": "127.0.0.1" if self.port is not None else "",
            "port": str(self.port or SOCKET_PORT),
            "password_encryption": "scram-sha-256",
            "logging_collector": "on",
            "log_directory": str(self.cluster.logs),
            # A week of logs at most, by overwriting the file of the same weekday.
            "log_filename": "postgresql-%a.log",
            "log_rotation_age": "1d",
            "log_truncate_on_rotation": "on",
            "log_line_prefix": "%m [%p] %q%u@%d %a ",
            # Maintenance of many queues in one transaction holds a lock for each of their tables.
            "max_locks_per_transaction": "256",
            **self.configuration,
        }

    def _pg_ctl(self, action: str, seconds: int, option: str) -> CompletedProcess[str]:
        cluster = self.cluster
        options = [f"--pgdata={cluster.data}", "--wait", f"--timeout={seconds}", "--silent", option]
        command = [cluster.binaries.program("pg_ctl"), action, *options]
        return cluster.user.run(command, cwd=cluster.home, timeout=seconds + 30)

    def _start_server(self) -> None:
        data, logs = self.cluster.data, self.cluster.logs
        release_stale_pid(data, self.cluster.socket_folder)
        # Backends of a killed postmaster hold its shared memory until they end.
        deadline = time.monotonic() + self.start_timeout.total_seconds()
        while processes_in(data) and time.monotonic() < deadline:
            time.sleep(0.05)
        seconds = round(self.start_timeout.total_seconds())
        started = self._pg_ctl("start", seconds, f"--log={logs / 'start.log'}")
        if started.returncode != 0 and not self.is_running:
            raise ServerNotStarted(
                f"PostgreSQL did not start: {self.cluster.log_tail() or started.stderr.strip()}",
                hint=f"the logs are in {logs}",
            )

    def _wait_until_ready(self) -> Postmaster:
        deadline = time.monotonic() + self.start_timeout.total_seconds()
        while True:
            running = read_postmaster(self.cluster.data)
            if running is not None and running.is_ready:
                return running
            if running is None or time.monotonic() > deadline:
                raise ServerNotStarted(
                    "PostgreSQL did not become ready in time",
                    hint=f"the logs are in {self.cluster.logs}; "
                    "a long recovery may need a longer embedded.start_timeout",
                )
            time.sleep(0.05)

    def _stop_server(self) -> None:
        for mode in ("fast", "immediate"):
            if not self.is_running:
                return
            if self._pg_ctl("stop", 60, f"--mode={mode}").returncode == 0:
                self.cluster.remove_socket_folder()
                return
            # Immediate mode loses nothing that was committed; the next start recovers.
            logger.warning("embedded_server_stop_slow", extra={"mode": mode})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class EmbeddedService(Service):
    """Uses the server until stopped, and starts it again when it has died in between."""

    def __init__(self, server: EmbeddedServer) -> None:
        super().__init__("embedded server")
        self._server = server
        self.dsn = server.dsn

    async def run(self) -> None:
        """Start the server, watch it, and leave it. Blocking calls run in a thread."""
        loop = asyncio.get_running_loop()
        # A separate thread, because those of the loop may all be waiting for this server.
        thread = ThreadPoolExecutor(1, thread_name_prefix="embedded server")
        try:
            await loop.run_in_executor(thread, self._server.start)
            try:
                self.announce_ready()
                while not await self.pause(WATCH_SECONDS):
                    if await loop.run_in_executor(thread, self._server.revive):
                        self.signals.emit("revived")
            finally:
                await loop.run_in_executor(thread, self._server.stop)
        finally:
            thread.shutdown(wait=False)
