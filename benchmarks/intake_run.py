"""Imports everything that one server has, in a process of its own, and reports what it took.

The whole way: scan, claim, fetch, store, record, notify. Usage: python -m benchmarks.intake_run,
with a JSON object on standard input: dsn, key, settings, server. With `scans` it only scans the
server so many times, after one listing of which nothing is recorded.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine, open_engine
from postroad.intake.listing import Listing
from postroad.intake.notice import create_queues, notify
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault


async def _import_all(engine: Engine, server: int) -> dict[str, Any]:
    await create_queues(engine)
    began, processor = time.perf_counter(), time.process_time()
    await discover(engine, server)
    files = 0
    while batches := await dispatch(engine, server):
        done = await asyncio.gather(*(transfer(engine, ids) for ids in batches))
        for ids in done:
            files += len(await notify(engine, ids))
    seconds = time.perf_counter() - began
    await engine.close()
    return {"seconds": seconds, "files": files, "processor": time.process_time() - processor}


async def _scan(engine: Engine, server_id: int, scans: int) -> dict[str, Any]:
    began = time.perf_counter()
    server = await engine.server(server_id)
    async with engine.lend(server) as source:
        listed = 0
        async for page in Listing(source, server).pages():
            listed += len(page)
    found: dict[str, Any] = {"listed": listed, "listing": time.perf_counter() - began, "scans": []}
    for _ in range(scans):
        began, processor = time.perf_counter(), time.process_time()
        report = await discover(engine, server_id)
        if report is None:
            raise RuntimeError("the server is not to be scanned")
        took = {
            "seconds": time.perf_counter() - began,
            "processor": time.process_time() - processor,
        }
        found["scans"].append(report | took | {"peak_bytes": _peak_bytes()})
    await engine.close()
    return found


def _peak_bytes() -> int:
    # Not by getrusage: its figure begins with the memory of the process that started this one.
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel tells no peak of memory")


def main() -> None:
    given = json.load(sys.stdin)
    engine = open_engine(
        given["dsn"],
        IntakeSettings(**given["settings"]),
        Vault([given["key"]]),
        Path("/nonexistent"),
    )
    scans = given.get("scans", 0)
    work = _scan(engine, given["server"], scans) if scans else _import_all(engine, given["server"])
    found = asyncio.run(work)
    found["peak_bytes"] = _peak_bytes()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
