"""A TCP proxy that cuts a connection between a request and its answer, or makes the network slow.

```
client ──> proxy ──> HAProxy ──> primary
```

`request`: the chunk that matches never reaches the server. `reply`: it does, the server acts on it,
and its answer never reaches the client. Either way both sides then see a reset connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Cut", "CuttingProxy", "Side"]

Side = Literal["request", "reply"]
# A host and a port, or the path of a socket.
Target: TypeAlias = "tuple[str, int] | str"
CHUNK_BYTES = 65536
# A commit, alone or among other statements; a Sync message, which ends every other call.
COMMIT = re.compile(rb"\bcommit\b", re.IGNORECASE)
SYNC = re.compile(rb"S\x00\x00\x00\x04$")


@dataclass
class Cut:
    """A cut to be made once, on the first connection that sends what it waits for."""

    side: Side
    sent: re.Pattern[bytes] = COMMIT

    def fits(self, chunk: bytes) -> bool:
        """Whether a chunk from a client is the one to cut at."""
        return self.sent.search(chunk) is not None


class CuttingProxy:
    """Listens on an address for as long as the block lasts."""

    def __init__(
        self, listen: str, target: Target, on_cut: Callable[[], None] | None = None
    ) -> None:
        self._listen = listen
        self._target = target
        # Called when a cut takes effect: the request is here, or the server has answered it.
        self.on_cut = on_cut or (lambda: None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._cut: Cut | None = None
        self.delay_seconds = 0.0
        self.cuts = 0
        self.port = 0

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def arm(self, cut: Cut | None) -> None:
        """Make this cut at the next opportunity; None takes back one that was not made."""
        self._cut = cut

    @property
    def is_armed(self) -> bool:
        """Whether a cut has not been made yet."""
        return self._cut is not None

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, self._listen, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.current_task()
        assert relay is not None
        self._relays.add(relay)
        try:
            async with asyncio.timeout(5):
                server = await (
                    asyncio.open_unix_connection(self._target)
                    if isinstance(self._target, str)
                    else asyncio.open_connection(*self._target)
                )
            await _Relay(self, (reader, writer), server).run()
        except (OSError, TimeoutError, asyncio.CancelledError):
            # Cancelled only when the proxy is closed.
            pass
        finally:
            self._relays.discard(relay)
            writer.transport.abort()

    def take(self, chunk: bytes) -> Cut | None:
        """Return the cut to make at this chunk, once."""
        cut = self._cut
        if cut is None or not cut.fits(chunk):
            return None
        self._cut = None
        self.cuts += 1
        return cut


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Relay:
    """One connection of a client and its connection to the server."""

    def __init__(self, proxy: CuttingProxy, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._drops_reply = False

    async def run(self) -> None:
        try:
            tasks = {
                asyncio.ensure_future(self._requests()),
                asyncio.ensure_future(self._replies()),
            }
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for _, writer in (self._client, self._server):
                with contextlib.suppress(OSError):
                    writer.transport.abort()

    async def _requests(self) -> None:
        while chunk := await self._client[0].read(CHUNK_BYTES):
            cut = self._proxy.take(chunk)
            if cut is not None and cut.side == "request":
                self._proxy.on_cut()
                return
            self._drops_reply = self._drops_reply or cut is not None
            await self._pass(self._server[1], chunk)

    async def _replies(self) -> None:
        while chunk := await self._server[0].read(CHUNK_BYTES):
            if self._drops_reply:
                self._proxy.on_cut()
                return
            await self._pass(self._client[1], chunk)

    async def _pass(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        if self._proxy.delay_seconds:
            await asyncio.sleep(self._proxy.delay_seconds)
        writer.write(chunk)
        await writer.drain()
