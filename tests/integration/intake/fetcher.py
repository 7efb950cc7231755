"""A worker process for tests: fetches what one server has, and tells the bytes it has fetched."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from postroad.intake.engine import Engine, open_engine
from postroad.intake.source import Source
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault


def _tell_bytes() -> None:
    fetched = 0
    read = Source.read_range

    async def telling(source: Any, file: Any, shown: str, offset: int, size: int) -> bytearray:
        nonlocal fetched
        # Before the bytes are asked for, so that none are forgotten when this process is killed.
        fetched += size
        print(fetched, flush=True)  # noqa: T201
        return await read(source, file, shown, offset, size)

    Source.read_range = telling  # type: ignore[method-assign]


async def _fetch(engine: Engine, server: int) -> None:
    for ids in await dispatch(engine, server):
        await transfer(engine, ids)
    await engine.close()


def main() -> None:
    given = json.load(sys.stdin)
    _tell_bytes()
    settings = IntakeSettings(**given["settings"])
    engine = open_engine(given["dsn"], settings, Vault([given["key"]]), Path("/nonexistent"))
    asyncio.run(_fetch(engine, given["server"]))


if __name__ == "__main__":
    main()
