"""Imports everything that one server has, in a process of its own, and tells what it took.

The whole way: look, claim, fetch, store, note, notify. Usage: python -m benchmarks.intake_run, with
a JSON object on standard input: dsn, key, settings, server.
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
    found = asyncio.run(_import_all(engine, given["server"]))
    found["peak_bytes"] = _peak_bytes()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
