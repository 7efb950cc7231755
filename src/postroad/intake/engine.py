"""What one worker process needs to import files: journal, store, vault, connections, settings.

An engine belongs to one event loop. Its parts are plain objects; the steps are functions over it:
`discovering.discover`, `transferring.transfer`, `uploading.upload`, `notifying.notify`,
`cleaning.clean_up`, `reconciling.reconcile`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from postroad.alerts import clear_alert_async, raise_alert_async
from postroad.alerts.reporting import Severity
from postroad.intake.alert_keys import server_alert, store_alert, temporary_alert
from postroad.intake.credentials import Credentials
from postroad.intake.errors import (
    CredentialsInvalid,
    HostKeyChanged,
    LoginRefused,
    ServerNotFound,
    SourceError,
    StoreError,
    TemporaryFolderFull,
)
from postroad.intake.journal import Journal, Row
from postroad.intake.pool import SourcePool
from postroad.intake.source import Endpoint, Source, connect
from postroad.intake.stores import Store, open_store
from postroad.intake.stores.store import S3Options
from postroad.settings.intake import IntakeSettings
from postroad.vault import SealBroken, Vault

__all__ = ["Engine", "default_owner", "open_engine", "s3_options"]

logger = logging.getLogger(__name__)

# A server that fails this often in a row is told to the administrator.
FAILURES_UNTIL_ALERT = 3


def default_owner() -> str:
    """Name this process, for the leases that it holds."""
    return f"{socket.gethostname()}:{os.getpid()}"


def s3_options(settings: IntakeSettings) -> S3Options:
    """Read how the store is spoken to."""
    access, secret = settings.s3_access_key, settings.s3_secret_key
    return S3Options(
        endpoint=settings.s3_endpoint,
        access_key=access.get_secret_value() if access else None,
        secret_key=secret.get_secret_value() if secret else None,
        region=settings.s3_region,
        checksums=settings.s3_checksums,
        uploads=settings.uploads,
    )


@dataclass(slots=True)
class Engine:
    """Everything that a step needs."""

    settings: IntakeSettings
    journal: Journal
    store: Store
    vault: Vault
    temporary_folder: Path
    owner: str = field(default_factory=default_owner)
    pool: SourcePool = field(default_factory=SourcePool)
    # Another process of this machine may have told so, and be gone.
    may_be_told_full: bool = True

    async def server(self, server_id: int) -> Row:
        """Return a server's row. Raises ServerNotFound."""
        rows = await self.journal.rows("select * from intake.sftp_servers where id = %s", server_id)
        if not rows:
            raise ServerNotFound(f"there is no server {server_id}")
        return rows[0]

    @contextlib.asynccontextmanager
    async def lend(self, server: Row) -> AsyncIterator[Source]:
        """Give a connection to a server; a first host key is pinned, with a warning."""
        fingerprint = "\0".join(
            str(server[name]) for name in ("host", "port", "username", "credentials", "host_key")
        )
        async with self.pool.lend(
            server["id"], fingerprint, lambda: self.connect(server)
        ) as source:
            yield source
        # A login alone proves nothing: there are servers that let in and then do not answer.
        if server["failures"] or server["status"] == "new":
            await self._server_works(server)

    async def connect(self, server: Row) -> Source:
        """Log in to a server and pin its key if it has none."""
        try:
            credentials = Credentials.open(self.vault, server["credentials"])
        except (SealBroken, CredentialsInvalid) as broken:
            raise LoginRefused(
                f"the credentials of {server['name']} cannot be used: {broken.message}",
                hint="enter them again, or bring the vault's key back",
            ) from broken
        endpoint = Endpoint(
            server["host"],
            server["port"],
            server["username"],
            server["host_key"],
            server["trusts_first_key"],
        )
        source = await connect(endpoint, credentials, timeout=self.settings.connect_timeout)
        if server["host_key"] is None and source.host_key:
            await self.journal.call("pin_host_key", server["id"], source.host_key)
            logger.warning(
                "host_key_pinned", extra={"server": server["name"], "host_key": source.host_key}
            )
            server["host_key"] = source.host_key
        return source

    async def server_failed(self, server: Row, failure: SourceError) -> None:
        """Record that a server cannot be used; alert after repeated failures or a changed key."""
        shown = getattr(failure, "shown", None)
        failures = await self.journal.call(
            "server_failed", server["id"], failure.status, failure.message, shown
        )
        logger.warning("server_failed", extra={"server": server["name"], "reason": failure.message})
        if isinstance(failure, HostKeyChanged):
            if failures:
                await self.alert(
                    server_alert(server["id"]),
                    "critical",
                    f"SFTP server {server['name']} shows another host key and was stopped",
                    f"{failure.message}. Shown: {shown}. {failure.hint}",
                )
        elif failures == FAILURES_UNTIL_ALERT:
            await self.alert(
                server_alert(server["id"]),
                "error",
                f"SFTP server {server['name']} cannot be used",
                f"{failure.message}. {failure.hint or ''}",
            )

    async def _server_works(self, server: Row) -> None:
        if await self.journal.call("server_works", server["id"]):
            await self.journal.using(
                lambda connection: clear_alert_async(connection, server_alert(server["id"]))
            )

    async def store_failed(self, failure: StoreError) -> None:
        """Note that the store cannot be used; the first failure in a row is told."""
        failures = await self.journal.call("store_failed", self.store.name, failure.message)
        logger.warning("store_failed", extra={"store": self.store.name, "reason": failure.message})
        if failures == 1:
            await self.alert(
                store_alert(self.store.name),
                "error",
                "The store of the intake cannot be used",
                failure.message,
            )

    async def store_works(self) -> None:
        """Note that the store works."""
        if await self.journal.call("store_works", self.store.name):
            await self.journal.using(
                lambda connection: clear_alert_async(connection, store_alert(self.store.name))
            )

    async def temporary_folder_full(self, failure: TemporaryFolderFull) -> None:
        """Tell that this machine's temporary folder is full; other machines go on."""
        self.may_be_told_full = True
        logger.warning("temporary_folder_full", extra={"reason": failure.message})
        machine = socket.gethostname()
        await self.alert(
            temporary_alert(machine),
            "error",
            f"The temporary folder of the intake on {machine} is full",
            f"{failure.message}; {failure.hint}",
        )

    async def temporary_folder_works(self) -> None:
        """Give the all-clear, if anybody may have told otherwise."""
        if self.may_be_told_full:
            self.may_be_told_full = False
            key = temporary_alert(socket.gethostname())
            await self.journal.using(lambda connection: clear_alert_async(connection, key))

    async def alert(self, key: str, severity: Severity, title: str, text: str) -> None:
        """Tell the administrator."""
        await self.journal.using(
            lambda connection: raise_alert_async(
                connection, key, room="intake", severity=severity, title=title, text=text
            )
        )

    async def close(self) -> None:
        """Close connections."""
        await self.pool.close()
        await self.store.close()
        await self.journal.close()


def open_engine(
    dsn: str, settings: IntakeSettings, vault: Vault, data_folder: Path, owner: str | None = None
) -> Engine:
    """Make an engine; nothing is connected yet."""
    # The library tells of every channel; what matters is logged here in our own words.
    asyncssh.set_log_level(logging.WARNING)
    return Engine(
        settings,
        Journal(dsn),
        open_store(settings.store or f"{data_folder}/intake/store", s3_options(settings)),
        vault,
        settings.temporary_folder or data_folder / "intake" / "temporary",
        owner or default_owner(),
    )
