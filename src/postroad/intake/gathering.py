"""What a connection writes in one turn of the event loop leaves by one call of the system.

The SSH library sends each request by itself, behind an empty packet that is sent by itself, too.
For small files these calls are a third of the whole work, here and at the server, which wakes up
for each of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import asyncssh

__all__ = ["gather_writes"]


def gather_writes(connection: asyncssh.SSHClientConnection) -> None:
    """Let a connection gather what it writes; one whose insides are unknown stays as it is."""
    transport = getattr(connection, "_transport", None)
    if isinstance(transport, asyncio.Transport):
        connection._transport = cast("asyncio.Transport", _Gathering(transport))


class _Gathering:
    """A transport that writes at the end of the turn; everything else is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._to = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._to.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._to.is_closing():
            self._to.write(b"".join(pieces))
