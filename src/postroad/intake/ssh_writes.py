"""Batches the writes of an SSH connection, at the price of a private attribute of asyncssh.

asyncssh sends each request with one system call, and an empty packet before it with another, which
costs 11 % more CPU time for small files (docs/decisions/0048). If the attribute changes, the
connection works without batching.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import asyncssh


def batch_writes(connection: asyncssh.SSHClientConnection) -> None:
    """Batch the writes of a connection."""
    transport = getattr(connection, "_transport", None)
    if isinstance(transport, asyncio.Transport):
        connection._transport = cast("asyncio.Transport", _BatchingTransport(transport))


class _BatchingTransport:
    """A transport that writes at the end of the event loop's iteration."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
