"""A sample partner of `postroad up`: an SFTP server where a shop puts its price lists.

The server is added to the intake, which imports new files. Most files have a few kilobytes, some
are large; only the latest are kept on the partner's side.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncssh

from postroad.cli.parts import PartContext
from postroad.intake import operations
from postroad.intake.credentials import Credentials
from postroad.intake.errors import ServerNotFound
from postroad.intake.source import exported
from postroad.postgres import connect_async
from postroad.service import Service

NAME = "sample-shop"
USER = "shop"
PAUSE_SECONDS = 5.0
KEPT = 40
LARGE_ONE_IN = 12
LARGE_BYTES = 8_000_000
ITEMS = ("bread", "milk", "apples", "nails", "paper")


class SampleSftp(Service):
    """Serves a folder over SFTP and creates files in it."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("sample SFTP server")
        self._context = context
        self._folder = context.application.data_folder / "sample" / "sftp"

    async def run(self) -> None:
        """Serve until stopped."""
        outgoing = self._folder / "outgoing"
        await asyncio.to_thread(outgoing.mkdir, parents=True, exist_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            authorized_client_keys=asyncssh.import_authorized_keys(exported(key)),
            server_host_keys=[await asyncio.to_thread(_host_key, self._folder / "host_key")],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=bytes(self._folder)),
        )
        async with server:
            await self._register(server.get_port(), key)
            self.announce_ready()
            while True:
                await asyncio.to_thread(_put_file, outgoing)
                if await self.pause(PAUSE_SECONDS):
                    return

    async def _register(self, port: int, key: asyncssh.SSHKey) -> None:
        vault = self._context.application.vault()
        values: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "username": USER,
            "directory": "/outgoing",
            "host_key": exported(_host_key(self._folder / "host_key")),
            "scan_interval": timedelta(seconds=5),
            # Files are renamed when they are complete, so one scan is enough.
            "looks": 1,
        }
        credentials = Credentials(private_key=key.export_private_key().decode())
        async with await connect_async(self._context.dsn) as connection:
            try:
                await operations.change_server(connection, vault, NAME, values, credentials)
            except ServerNotFound:
                given = {"name": NAME, **values}
                await operations.create_server(connection, vault, credentials, given)


def _host_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
        path.chmod(0o600)
    return asyncssh.read_private_key(str(path))


def _put_file(folder: Path) -> None:
    now = datetime.now(UTC)
    lines = [f"{item};{random.randrange(100, 9_999) / 100:.2f}" for item in ITEMS]  # noqa: S311
    text = "\n".join(lines * random.randrange(10, 400)) + "\n"  # noqa: S311 - a sample
    if random.randrange(LARGE_ONE_IN) == 0:  # noqa: S311
        text *= max(1, LARGE_BYTES // len(text))
    part = folder / f".prices-{now:%Y%m%d-%H%M%S}.part"
    part.write_text(text, encoding="utf-8")
    part.rename(folder / f"prices-{now:%Y%m%d-%H%M%S}.csv")
    for old in sorted(folder.glob("prices-*.csv"))[:-KEPT]:
        old.unlink()
