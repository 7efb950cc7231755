"""One part of coordination as a process of its own, to be killed: part, name, and the databases."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from datetime import timedelta

from postroad.coordination import Coordinator, Reader, Writer
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.service import Service

QUICK = timedelta(milliseconds=500)


def _services(part: str, writer: str, coordinator: str, reader: str) -> list[Service]:
    if part == "writer":
        return [Writer(writer, resend=QUICK), *writer_bridges(writer, coordinator)]
    if part == "coordinator":
        return [
            Coordinator(coordinator, ask=QUICK, deadline=timedelta(seconds=3), watch_interval=QUICK)
        ]
    options = {"repeat": QUICK, "poll_interval": QUICK, "snapshot": False, "page": 5}
    return [
        Reader(reader, writer, **options),  # type: ignore[arg-type]
        *reader_bridges(part, reader, writer, coordinator),
    ]


async def _main() -> None:
    async with AsyncExitStack() as running:
        for service in _services(*sys.argv[1:5]):
            await running.enter_async_context(service)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
