"""One part of coordination as a process: `writer` or the name of a reader, databases, page."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from postroad.coordination import Coordinator, Reader, Writer
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.service import Service


def _services(
    part: str, writer: str, coordinator: str, reader: str = "", page: str = ""
) -> list[Service]:
    if part == "writer":
        return [
            Writer(writer),
            Coordinator(coordinator),
            *writer_bridges(writer, coordinator),
        ]
    return [
        Reader(reader, writer, page=int(page)),
        *reader_bridges(part, reader, coordinator),
    ]


async def _main() -> None:
    async with AsyncExitStack() as running:
        for service in _services(*sys.argv[1:]):
            await running.enter_async_context(service)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
