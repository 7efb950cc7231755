"""A connection to an SFTP server, and its failures as errors of the intake.

The host key is checked against the pinned one before any credential is sent. Without a pinned key
the first one seen is pinned, except that a password is not sent to an unknown host unless the
operator allowed it (`trusts_first_key`): a signature with a private key reveals nothing, a password
does. No exec channel is opened, no file of the user's own SSH configuration is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import asyncssh
from asyncssh import SSHKey
from asyncssh.public_key import get_default_public_key_algs

from postroad.intake import errors
from postroad.intake.credentials import Credentials
from postroad.intake.ssh_writes import batch_writes
from postroad.postgres.calls import Row

# The first one is 1.5 times as fast as the library's default.
CIPHERS = (
    "aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com",
    "aes128-ctr", "aes256-ctr",
)  # fmt: skip
ANSWER_TIMEOUT_DEFAULT = timedelta(seconds=60)
KEEPALIVE_SECONDS = 15


def size_and_mtime(found: asyncssh.SFTPAttrs) -> tuple[int, int]:
    """Return the facts that identify a version of a path; an mtime that is not reported is zero."""
    return found.size or 0, int(found.mtime or 0)


@dataclass(eq=False)
class Source:
    """One logged-in connection with its SFTP session."""

    connection: asyncssh.SSHClientConnection
    sftp: asyncssh.SFTPClient
    host_key: str
    is_broken: bool = False
    answer_timeout: ClassVar[timedelta] = ANSWER_TIMEOUT_DEFAULT

    @contextlib.asynccontextmanager
    async def opened(self, path: bytes, shown: str) -> AsyncIterator[Any]:
        """Open a file for reading; it is closed at the end unless the connection broke."""
        async with answering(shown, self):
            file = await self.sftp.open(path, "rb")
        try:
            yield file
        finally:
            if not self.is_broken:
                async with answering(shown, self):
                    await file.close()

    async def read_range(self, file: Any, shown: str, offset: int, size: int) -> bytearray:
        """Read a range of an open file with many requests in flight; shorter at the file's end."""
        buffer = bytearray(size)
        count = 0
        async with answering(shown, self):
            async for place, data in await file.read_parallel(size, offset):
                start = place - offset
                buffer[start : start + len(data)] = data
                count += len(data)
        return buffer if count == size else buffer[:count]

    async def is_healthy(self, timeout_seconds: float = 5.0) -> bool:
        """Send a small request to the server."""
        if self.is_broken or self.connection.is_closed():
            return False
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.sftp.realpath(b".")
        except (asyncssh.Error, OSError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Close the connection without waiting long for a peer that may not answer."""
        with contextlib.suppress(Exception):
            self.sftp.exit()
        self.connection.abort()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await self.connection.wait_closed()


@dataclass(eq=False)
class _Client(asyncssh.SSHClient):
    """Records the server's key; accepts the pinned one or, if allowed, the first one presented."""

    pinned: list[SSHKey]
    trusts_first_key: bool
    shown: SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: SSHKey) -> bool:
        """Return whether credentials may be sent to the host with this key."""
        del host, addr, port
        self.shown = key
        return key in self.pinned if self.pinned else self.trusts_first_key


def exported(key: SSHKey) -> str:
    """Return a public key as text, without its comment."""
    return " ".join(key.export_public_key().decode().split()[:2])


async def connect(server: Row, credentials: Credentials, timeout: timedelta) -> Source:
    """Log in by a server's row and open an SFTP session. Raises SourceError, CredentialsInvalid."""
    lines = filter(str.strip, (server["host_key"] or "").splitlines())
    pinned = [asyncssh.import_public_key(line) for line in lines]
    client = _Client(pinned, server["trusts_first_key"] or credentials.password is None)
    seconds = timeout.total_seconds()
    options: dict[str, Any] = {}
    if pinned:
        algorithms = [name for key in pinned for name in key.sig_algorithms]
        algorithms += get_default_public_key_algs()
        options["server_host_key_algs"] = [name.decode() for name in dict.fromkeys(algorithms)]
    where = f"{server['host']}:{server['port']}"
    connection: asyncssh.SSHClientConnection | None = None
    try:
        async with asyncio.timeout(seconds * 2):
            connection = await asyncssh.connect(
                server["host"],
                server["port"],
                username=server["username"],
                password=credentials.password,
                client_keys=credentials.client_keys() or None,
                client_factory=lambda: client,
                known_hosts=b"",
                config=None,
                agent_path=None,
                gss_kex=False,
                gss_auth=False,
                encryption_algs=CIPHERS,
                compression_algs=["none"],
                connect_timeout=seconds,
                login_timeout=seconds,
                keepalive_interval=KEEPALIVE_SECONDS,
                **options,
            )
            batch_writes(connection)
            sftp = await connection.start_sftp_client()
    except BaseException as failure:  # noqa: BLE001 - raised again
        if connection is not None:
            connection.abort()
        raise _login_failure(failure, where, server["username"], client) from None
    return Source(connection, sftp, exported(client.shown) if client.shown else "")


def _login_failure(failure: BaseException, where: str, user: str, client: _Client) -> BaseException:
    other_keys = client.pinned and isinstance(failure, asyncssh.KeyExchangeFailed)
    if other_keys or isinstance(failure, asyncssh.HostKeyNotVerifiable):
        shown = exported(client.shown) if client.shown else None
        if not client.pinned:
            return errors.HostKeyUnpinned(
                f"the host key of {where} is not known, so the password was not sent",
                hint="compare the key with the owner of the server; then run"
                " `postroad intake servers trust NAME`",
                shown=shown,
            )
        kind = f", of kind {shown.split()[0]}" if shown else ""
        return errors.HostKeyChanged(
            f"{where} shows another host key than the pinned one{kind}",
            hint="ask the owner of the server; then `postroad intake servers trust NAME`",
            shown=shown,
        )
    if isinstance(failure, asyncssh.PermissionDenied):
        return errors.LoginRefused(
            f"{where} refuses the login of {user}",
            hint="check user name and credentials: postroad intake servers test NAME",
        )
    if isinstance(failure, (asyncssh.Error, OSError, TimeoutError)):
        text = f"{where} cannot be reached: {_reason(failure)}"
        return errors.SourceUnreachable(text, hint="check host, port and firewall")
    return failure


def _reason(failure: BaseException) -> str:
    if isinstance(failure, TimeoutError) and not str(failure):
        return "no answer in time"
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    text = getattr(failure, "reason", "") or str(failure)
    return text.splitlines()[0] if text else type(failure).__name__


@contextlib.asynccontextmanager
async def answering(what: str, source: Source) -> AsyncIterator[None]:
    """Limit the time of requests about a file, and raise errors of the intake.

    After the timeout the connection is also aborted, because the library would request the server
    to close its handles and wait for the answer forever.
    """
    seconds = source.answer_timeout.total_seconds()
    loop = asyncio.get_running_loop()
    giving_up = loop.call_later(seconds, source.connection.abort)
    try:
        async with asyncio.timeout(seconds):
            yield
    except asyncssh.SFTPNoSuchFile:
        raise errors.FileVanished(f"{what} is gone from the source") from None
    except asyncssh.SFTPPermissionDenied:
        raise errors.FileForbidden(
            f"{what} may not be read: permission denied",
            hint="ask the owner of the server for the right to read it",
        ) from None
    except (asyncssh.Error, OSError, TimeoutError) as failure:
        # After the timeout the failure may be that of the aborted connection.
        reason = _reason(TimeoutError() if loop.time() >= giving_up.when() else failure)
        is_lost = isinstance(failure, asyncssh.SFTPConnectionLost | asyncssh.SFTPNoConnection)
        if isinstance(failure, asyncssh.SFTPError) and not is_lost:
            raise errors.FileUnreadable(f"{what} cannot be read: {reason}") from None
        source.is_broken = True
        raise errors.SourceUnreachable(f"the connection broke at {what}: {reason}") from None
    finally:
        giving_up.cancel()


def encoded(path: str) -> bytes:
    """Return a path of a server's row in the server's encoding."""
    return path.encode("utf-8", "surrogateescape")


def remote_path(server: Row, row: Row) -> bytes:
    """Return the path of a file at its server."""
    return encoded(server["directory"]) + b"/" + bytes(row["path"])


async def check_version(source: Source, path: bytes, row: Row) -> None:
    """Check that the file at the source is the version of the row. Raises FileChanged."""
    async with answering(row["filename"], source):
        same_version(await source.sftp.stat(path), row)


def same_version(found: asyncssh.SFTPAttrs, row: Row) -> None:
    """Compare attributes with the version of the row. Raises FileChanged."""
    size, mtime = size_and_mtime(found)
    if (size, mtime) != (row["filesize"], row["mtime"]):
        raise errors.FileChanged(
            f"{row['filename']} has changed at the source: {size} bytes of mtime {mtime}, "
            f"discovered with {row['filesize']} of {row['mtime']}"
        )
