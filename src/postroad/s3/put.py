"""Signed PUTs to S3 without the client library: the requests that carry the bytes of files.

A PUT through boto3 takes twice the CPU time of the rest of a small file's import, and hashes a part
a second time (docs/decisions/0048). The sha256 of the body is known here and signs it (Signature
Version 4). A PUT that is not answered by 200 is repeated through boto3, which handles redirects,
retries and errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeAlias
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_SECONDS = 120.0
MAX_ANSWER_BYTES = 1024 * 1024
OK = 200
# Raised if the peer has closed a kept connection, or does not speak HTTP.
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError)
_Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


@dataclass(slots=True)
class SignedPut:
    """Signed PUTs to one endpoint over a few kept connections."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    connections: int
    timeout_seconds: float = TIMEOUT_SECONDS
    _free: list[_Connection] = field(default_factory=list, repr=False)
    _slots: asyncio.Semaphore | None = field(default=None, repr=False)
    _blocking: list[HTTPConnection] = field(default_factory=list, repr=False)

    async def put(self, path: str, body: bytes | bytearray, sha256: str) -> str | None:
        """PUT a small body and return its tag; None when it must be sent by boto3."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.connections)
        async with self._slots:
            while True:
                kept = connection = self._free.pop() if self._free else None
                is_usable = False
                try:
                    async with asyncio.timeout(self.timeout_seconds):
                        reader, writer = connection = kept or await self._connect()
                        target, headers = self._signed(path, sha256)
                        head = [f"PUT {target} HTTP/1.1", f"Content-Length: {len(body)}"]
                        head += [f"{name}: {value}" for name, value in headers.items()]
                        text = "\r\n".join([*head, "", ""])
                        writer.write(text.encode("ascii") + body)
                        await writer.drain()
                        etag, is_usable = await _answer(reader)
                        return etag
                except _BROKEN:
                    # The peer has closed a kept connection: repeat on another one.
                    if kept is None:
                        return None
                finally:
                    if connection and is_usable:
                        self._free.append(connection)
                    elif connection:
                        _close(connection)

    def put_part(self, path: str, body: bytes | bytearray, sha256: str, **query: str) -> str | None:
        """PUT a part in the calling thread, so that the event loop is free for the source."""
        target, headers = self._signed(path, sha256, **query)
        try:
            connection = self._blocking.pop()
        except IndexError:
            address = urlsplit(self.endpoint)
            kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
            connection = kind(address.netloc, timeout=self.timeout_seconds)
        try:
            connection.request("PUT", target, body=body, headers=headers)
            answer = connection.getresponse()
            answer.read()
        except (HTTPException, OSError):
            # The peer may have closed the kept connection.
            connection.close()
            return None
        self._blocking.append(connection)
        return answer.headers.get("ETag") if answer.status == OK else None

    def close(self) -> None:
        """Close the kept connections."""
        while self._free:
            _close(self._free.pop())
        while self._blocking:
            self._blocking.pop().close()

    async def _connect(self) -> _Connection:
        address = urlsplit(self.endpoint)
        is_secure = address.scheme == "https"
        reader, writer = await asyncio.open_connection(
            address.hostname,
            address.port or (443 if is_secure else 80),
            ssl=ssl.create_default_context() if is_secure else None,
            limit=MAX_ANSWER_BYTES,
        )
        return reader, writer

    def _signed(self, path: str, sha256: str, **query: str) -> tuple[str, dict[str, str]]:
        target = quote(path, safe="/~")
        asked = urlencode(sorted(query.items()), quote_via=quote)
        host = urlsplit(self.endpoint).netloc
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        request = (
            f"PUT\n{target}\n{asked}\nhost:{host}\nx-amz-content-sha256:{sha256}\n"
            f"x-amz-date:{now}\n\n{_SIGNED}\n{sha256}"
        )
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
        key = _signing_key(self.secret_key, now[:8], self.region)
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        return f"{target}{'?' if asked else ''}{asked}", {
            "Host": host,
            "x-amz-content-sha256": sha256,
            "x-amz-date": now,
            "Content-Type": "application/octet-stream",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}",
        }


def _close(connection: _Connection) -> None:
    with contextlib.suppress(Exception):
        connection[1].transport.abort()


@lru_cache(maxsize=8)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


async def _answer(reader: asyncio.StreamReader) -> tuple[str | None, bool]:
    """Read an answer: the tag if it is a success, and whether the connection can be kept."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    # Without a length the body is not read, and the connection is closed.
    is_kept = "content-length" in headers and headers.get("connection", "").lower() != "close"
    if "content-length" in headers:
        await reader.readexactly(int(headers["content-length"]))
    return (headers.get("etag", "") if status == OK else None), is_kept
