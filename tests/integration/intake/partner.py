"""A partner who sends files by SFTP, as tests see them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from postroad.intake import operations
from postroad.intake.cleanup import clean_up
from postroad.intake.credentials import Credentials
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.notice import notify
from postroad.intake.stores import Store
from postroad.intake.transfer import transfer, upload
from postroad.intake.work import dispatch, reconcile
from postroad.postgres import run_blocking
from postroad.vault import Vault
from tests.fixtures.sshd import SshServer


async def stored(store: Store, key: str) -> bytes:
    """Return the content of an object."""
    size = await store.size(key)
    return await store.read_range(key, 0, size) if size else b""


@dataclass
class Partner:
    """A folder at a server, the row of it, and what came of the files in it."""

    folder: Path
    connection: psycopg.Connection[Any]
    vault: Vault
    server_id: int

    @classmethod
    def at(
        cls, sshd: SshServer, connection: psycopg.Connection[Any], vault: Vault, **values: Any
    ) -> Partner:
        """Make a folder and the server's row; files count as whole at the first look."""
        folder = sshd.new_folder()
        row = run_blocking(
            connection.info.dsn,
            operations.create_server,
            vault,
            Credentials(private_key=sshd.key()),
            {
                "host": "127.0.0.1",
                "port": sshd.port,
                "username": sshd.username,
                "directory": str(folder),
                "looks": 1,
                **values,
            },
        )
        return cls(folder, connection, vault, row["id"])

    def change(self, **values: Any) -> None:
        """Change the server's row; a change of the login brings the credentials with it."""
        credentials = None
        if values.keys() & {"host", "port", "username", "host_key"}:
            credentials = Credentials.open(self.vault, self.server["credentials"])
        self.run(operations.change_server, self.vault, self.server_id, values, credentials)

    def run(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Run an operation of the intake in a transaction of its own."""
        return run_blocking(self.connection.info.dsn, operation, *arguments)

    def write(self, name: str | bytes, data: bytes) -> Path:
        """Put a file into the folder."""
        path = Path(os.fsdecode(os.fsencode(self.folder) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    @property
    def server(self) -> dict[str, Any]:
        """The server's row."""
        return self.rows("select * from intake.sftp_servers where id = %s", self.server_id)[0]

    @property
    def files(self) -> list[dict[str, Any]]:
        """The journal of this server."""
        return self.rows(
            "select * from intake.imported_files where server_id = %s order by id", self.server_id
        )

    def file(self, name: str) -> dict[str, Any]:
        """Return the latest version of a file."""
        return [row for row in self.files if row["filename"] == name][-1]

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each file's latest version."""
        return {row["filename"]: row["status"] for row in self.files}

    def notices(self) -> list[dict[str, Any]]:
        """Consume the notices that are there."""
        rows = self.rows("select data from mbus.consumen_file_events_by_default(100000)")
        return [row["data"] for row in rows]

    def rows(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        """Ask the database."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), parameters).fetchall()


async def run_once(engine: Engine, partner: Partner) -> None:
    """Do what the tasks do, one after the other: look, fetch, upload, notify, clean up."""
    await discover(engine, partner.server_id)
    await work_off(engine, partner)


async def work_off(engine: Engine, partner: Partner) -> None:
    """Do the work that waits, without looking at the server."""
    while batches := await dispatch(engine, partner.server_id):
        for ids in batches:
            await notify(engine, await transfer(engine, ids))
    work = await reconcile(engine)
    for ids in work.uploads:
        await notify(engine, await upload(engine, ids))
    for ids in work.notices:
        await notify(engine, ids)
    await clean_up(engine)


def sha256(data: bytes) -> str:
    """Return the digest as the journal writes it."""
    return hashlib.sha256(data).hexdigest()
