"""The dependencies of one worker process: journal, store, vault, connections, settings."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

import asyncssh

from postroad.alerts.reporting import Severity
from postroad.intake import errors
from postroad.intake.credentials import Credentials
from postroad.intake.pool import SourcePool
from postroad.intake.source import Source, connect
from postroad.intake.stores import Store, open_store
from postroad.intake.stores.folder import FolderStore
from postroad.postgres.calls import Row
from postroad.postgres.journal import Journal
from postroad.settings.intake import IntakeSettings
from postroad.vault import SealBroken, Vault

logger = logging.getLogger(__name__)

# An alert is raised after this many failures of a server in a row.
FAILURES_UNTIL_ALERT = 3
# How long a step waits for PostgreSQL.
PATIENCE = timedelta(seconds=60)


# The subject of an alert: a server, a file, a file's clean-up, a store, or a machine's folder.
Subject = Literal["server", "file", "cleanup", "store", "temporary"]


@dataclass(slots=True)
class Engine:
    """The dependencies of a step; they belong to one event loop."""

    settings: IntakeSettings
    journal: Journal
    store: Store
    vault: Vault
    temporary: FolderStore
    # The name of this process in the leases that it holds.
    owner: str
    pool: SourcePool = field(default_factory=SourcePool)
    # True at the start: an earlier process of this machine may have raised the alert.
    may_have_alerted_full: bool = True

    async def server(self, server_id: int) -> Row:
        """Return a server's row. Raises ServerNotFound."""
        rows = await self.journal.rows("select * from intake.sftp_servers where id = %s", server_id)
        if not rows:
            raise errors.ServerNotFound(f"there is no server {server_id}")
        return rows[0]

    async def by_server(self, rows: Sequence[Row]) -> AsyncIterator[tuple[Row, list[Row]]]:
        """Group files by their server."""
        for server_id in dict.fromkeys(row["server_id"] for row in rows):
            files = [row for row in rows if row["server_id"] == server_id]
            yield await self.server(server_id), files

    @contextlib.asynccontextmanager
    async def lend(self, server: Row) -> AsyncIterator[Source]:
        """Lend a connection to a server; a SourceError inside is recorded and raised again."""
        try:
            async with self.pool.lend(server, self.connect) as source:
                yield source
        except errors.SourceError as failure:
            await self.server_failed(server, failure)
            raise
        # A login alone is no proof: some servers accept it and then do not answer.
        if server["failures"] or server["status"] == "new":
            await self.works("server", server["id"])

    async def connect(self, server: Row) -> Source:
        """Log in to a server; if it has no pinned host key, its key is pinned, with a warning."""
        try:
            credentials = Credentials.open(self.vault, server["credentials"])
        except (SealBroken, errors.CredentialsInvalid) as broken:
            raise errors.LoginRefused(
                f"the credentials of {server['name']} cannot be used: {broken.message}",
                hint="enter them again, or restore the vault's key",
            ) from broken
        source = await connect(server, credentials, self.settings.connect_timeout)
        if server["host_key"] is None and source.host_key:
            server["host_key"] = source.host_key
            await self.journal.change("pin_host_key", server["id"], source.host_key)
            shown = {"server": server["name"], "host_key": source.host_key}
            logger.warning("host_key_pinned", extra=shown)
        return source

    async def server_failed(self, server: Row, failure: errors.SourceError) -> None:
        """Record that a server cannot be used; alert after repeated failures or a changed key."""
        shown = failure.facts.get("shown")
        given = server["id"], failure.status, failure.message, shown
        failures = await self.journal.change("server_failed", *given)
        logger.warning("server_failed", extra={"server": server["name"], "reason": failure.message})
        name = f"SFTP server {server['name']}"
        if isinstance(failure, errors.HostKeyChanged) and failures:
            text = f"{failure.message}. Shown: {shown}. {failure.hint}"
            title = f"{name} shows another host key and was stopped"
            await self.alert("server", server["id"], title, text, "critical")
        elif failures == FAILURES_UNTIL_ALERT:
            text = f"{failure.message}. {failure.hint or ''}"
            await self.alert("server", server["id"], f"{name} cannot be used", text)

    async def works(self, kind: Literal["server", "store"], name: int | str) -> None:
        """Record that a server or a store can be used; clear its alert if it had failed."""
        if await self.journal.change(f"{kind}_works", name):
            await self.journal.call("alerts.clear", f"intake.{kind}.{name}")

    async def store_failed(self, failure: errors.StoreError) -> None:
        """Record that the store cannot be used; alert at the first failure in a row."""
        failures = await self.journal.change("store_failed", self.store.name, failure.message)
        logger.warning("store_failed", extra={"store": self.store.name, "reason": failure.message})
        if failures == 1:
            title = "The store of the intake cannot be used"
            await self.alert("store", self.store.name, title, failure.message)

    async def temporary_folder_full(self, failure: errors.TemporaryFolderFull) -> None:
        """Alert that the temporary folder of this machine is full; other machines continue."""
        self.may_have_alerted_full = True
        logger.warning("temporary_folder_full", extra={"reason": failure.message})
        machine = socket.gethostname()
        title = f"The temporary folder of the intake on {machine} is full"
        await self.alert("temporary", machine, title, f"{failure.message}; {failure.hint}")

    async def temporary_folder_works(self) -> None:
        """Clear the alert, if one may have been raised."""
        if self.may_have_alerted_full:
            self.may_have_alerted_full = False
            await self.journal.call("alerts.clear", f"intake.temporary.{socket.gethostname()}")

    async def alert(
        self, kind: Subject, name: int | str, title: str, text: str, severity: Severity = "error"
    ) -> None:
        """Raise the alert of a server, a file, a store or a machine's folder."""
        key = f"intake.{kind}.{name}"
        await self.journal.call("alerts.raise", key, "intake", severity, title, text)

    async def close(self) -> None:
        """Close connections."""
        await self.pool.close()
        await self.store.close()
        await self.journal.close()


def open_journal(dsn: str, *, is_pooled: bool = False) -> Journal:
    """Return the journal; calls are repeated, as its functions check the token of the lease."""
    return Journal(dsn, "intake", patience=PATIENCE, is_pooled=is_pooled)


def open_engine(
    dsn: str,
    settings: IntakeSettings,
    vault: Vault,
    data_folder: Path,
    owner: str | None = None,
    *,
    is_pooled: bool = False,
) -> Engine:
    """Make an engine; nothing is connected yet."""
    # At its default level the library logs every channel.
    asyncssh.set_log_level(logging.WARNING)
    return Engine(
        settings,
        open_journal(dsn, is_pooled=is_pooled),
        open_store(settings.store or f"{data_folder}/intake/store", settings),
        vault,
        FolderStore(settings.temporary_folder or data_folder / "intake" / "temporary"),
        owner or f"{socket.gethostname()}:{os.getpid()}",
    )
