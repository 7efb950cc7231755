"""The server under test, as a process of its own: serve.py DSN ROOT PORT SETTINGS."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvloop

from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings


async def _serve() -> None:
    dsn, root, port, settings = sys.argv[1:5]
    server = ExchangeServer(
        dsn, Path(root), ExchangeSettings(**json.loads(settings)), port=int(port)
    )
    async with server:
        print(server.url, flush=True)
        await server.join()


if __name__ == "__main__":
    uvloop.run(_serve())
