"""The hot calls of S3 without the weight of the client library: signed PUTs over kept connections.

A PUT through boto3 costs 1.4 ms of processor time and a change of threads, one here a fraction of
it, which is what decides for thousands of small files. Only what is common and succeeds goes this
way: whatever is not answered by 200 is done again through boto3, which knows redirects, retries
and errors. The body's sha256 is known anyway and signs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ssl
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from postroad.intake.stores.s3_signer import Signer

__all__ = ["PartWire", "Wire"]

TIMEOUT_SECONDS = 120.0
ANSWER_BYTES_MOST = 1024 * 1024
OK = 200
# What a kept connection shows when the other side has closed it, or is no HTTP server.
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError)


@dataclass(slots=True)
class _Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_fresh: bool = True


@dataclass(slots=True)
class Wire:
    """Signed PUTs to one endpoint over a few kept connections."""

    signer: Signer
    lines: int
    _free: list[_Line] = field(default_factory=list, repr=False)
    _limit: asyncio.Semaphore | None = field(default=None, repr=False)

    async def put(self, path: str, body: bytes | bytearray, sha256: str) -> str | None:
        """PUT a body and return its tag; None when it did not work and must be done another way."""
        if self._limit is None:
            self._limit = asyncio.Semaphore(self.lines)
        async with self._limit:
            while True:
                line = self._free.pop() if self._free else None
                try:
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        if line is None:
                            line = await self._connect()
                        etag, is_kept = await self._put(line, path, body, sha256)
                except _BROKEN:
                    if line is None or line.is_fresh:
                        _close(line)
                        return None
                    # The other side closed it while it was kept: once more on another one.
                    _close(line)
                    continue
                except BaseException:
                    _close(line)
                    raise
                line.is_fresh = False
                if is_kept:
                    self._free.append(line)
                else:
                    _close(line)
                return etag

    def close(self) -> None:
        """Close the kept connections."""
        while self._free:
            _close(self._free.pop())

    async def _put(
        self, line: _Line, path: str, body: bytes | bytearray, sha256: str
    ) -> tuple[str | None, bool]:
        signed = self.signer.put(path, {}, sha256)
        head = [f"PUT {signed.target} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in signed.headers.items()]
        head += [f"Content-Length: {len(body)}", "", ""]
        line.writer.write("\r\n".join(head).encode("ascii") + body)
        await line.writer.drain()
        return await _answer(line.reader)

    async def _connect(self) -> _Line:
        address = urlsplit(self.signer.endpoint)
        is_secure = address.scheme == "https"
        reader, writer = await asyncio.open_connection(
            address.hostname,
            address.port or (443 if is_secure else 80),
            ssl=ssl.create_default_context() if is_secure else None,
            limit=ANSWER_BYTES_MOST,
        )
        return _Line(reader, writer)


async def _answer(reader: asyncio.StreamReader) -> tuple[str | None, bool]:
    """Read an answer whole: its tag if it is good, and whether the connection is kept."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {}
    for text in head[1:]:
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    if "content-length" in headers:
        await reader.readexactly(int(headers["content-length"]))
        is_kept = headers.get("connection", "").lower() != "close"
    else:
        # Of unknown length: the connection is not used again, so nothing has to be read.
        is_kept = False
    return (headers.get("etag", "") if status == OK else None), is_kept


def _close(line: _Line | None) -> None:
    if line is not None:
        with contextlib.suppress(Exception):
            line.writer.transport.abort()


@dataclass(slots=True)
class PartWire:
    """Signed PUTs of parts, called in threads: sending megabytes leaves the event loop free."""

    signer: Signer
    _local: threading.local = field(default_factory=threading.local, repr=False)
    _opened: list[http.client.HTTPConnection] = field(default_factory=list, repr=False)

    def put(self, path: str, query: dict[str, str], body: bytearray, sha256: str) -> str | None:
        """PUT a part and return its tag; None when it must be done another way."""
        for _ in range(2):
            try:
                signed = self.signer.put(path, query, sha256)
                connection = self._connection()
                connection.request("PUT", signed.target, body=body, headers=signed.headers)
                answer = connection.getresponse()
                answer.read()
            except (http.client.HTTPException, OSError):
                # A kept connection may have been closed by the other side: once more on a new one.
                self._drop()
            else:
                return answer.headers.get("ETag") if answer.status == OK else None
        return None

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            address = urlsplit(self.signer.endpoint)
            if address.scheme == "https":
                connection = http.client.HTTPSConnection(
                    address.netloc, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context()
                )
            else:
                connection = http.client.HTTPConnection(address.netloc, timeout=TIMEOUT_SECONDS)
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    def close(self) -> None:
        """Close the connections of all threads, once these have ended."""
        while self._opened:
            self._opened.pop().close()

    def _drop(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None
