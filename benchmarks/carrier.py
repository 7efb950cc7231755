"""Carries so many messages over a bridge and prints how many seconds it took."""

from __future__ import annotations

import asyncio
import sys
import time

from postroad.bridge import DatabaseBridge


async def main(source: str, target: str, queue: str, count: int) -> None:
    bridge = DatabaseBridge(queue, source=source, target=target, queue=queue)
    bridge.signals.listen("committed")
    began = time.perf_counter()
    async with bridge:
        while bridge.delivered < count:
            await bridge.signals.wait("committed")
        seconds = time.perf_counter() - began
    print(seconds)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
