"""Discovery: one look at a server, written to the journal page by page.

```
begin_scan ── lease on the server's scan, held on by a heartbeat; a second discoverer leaves
  page ──> see       known versions are passed over, others are sighted
           promote   what is whole by the server's rules becomes a row: discovered
end_scan ── next look in `scan_interval`; sightings of what is gone are forgotten
```

A discoverer that dies leaves a lease that ends; what it wrote stays. Two that run at once write the
same rows once, because a version is unique.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import psycopg

from postroad import trace
from postroad.clock import SYSTEM_CLOCK
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.holding import HEARTBEATS_PER_LEASE
from postroad.intake.journal import Row
from postroad.intake.keys import shown_name
from postroad.intake.listing import Entry, Listing

__all__ = ["discover"]

logger = logging.getLogger(__name__)

SCAN_LEASE = timedelta(seconds=60)
PAGES_PER_PROMOTION = 10


async def discover(engine: Engine, server_id: int) -> Row | None:
    """Look at one server once; returns the report, None when it is not to be looked at now.

    A server that cannot be used is noted and raises its SourceError. Files begin their way here,
    so what a look finds is on the trace that is followed, or on a new one.
    """
    with trace.following(trace.current() or trace.new()):
        return await _discover(engine, server_id)


async def _discover(engine: Engine, server_id: int) -> Row | None:
    scan = await engine.journal.call("begin_scan", server_id, SCAN_LEASE)
    if scan is None:
        return None
    server = await engine.server(server_id)
    began = SYSTEM_CLOCK.monotonic()
    report: Row = {"files": 0, "discovered": 0}
    is_whole = False
    try:
        async with engine.lend(server) as source, _holding(engine, server_id, scan) as is_held:
            listing = Listing(source, server)
            pages = 0
            async for page in listing.pages():
                await _see(engine, server_id, scan, page)
                pages += 1
                if not is_held():
                    break
                # A done-file may stand on a later page than what it speaks for.
                if pages % PAGES_PER_PROMOTION == 0 and server["done_suffix"] is None:
                    report["discovered"] += await engine.journal.call("promote", server_id)
        report["discovered"] += await engine.journal.call("promote", server_id)
        report.update(
            files=listing.files,
            folders=listing.folders,
            links_passed_over=listing.links_passed_over,
            problems=listing.problems,
        )
        is_whole = not listing.problems
    except SourceError as failure:
        report["problems"] = [failure.message]
        await engine.server_failed(server, failure)
        raise
    finally:
        report["seconds"] = round(SYSTEM_CLOCK.monotonic() - began, 3)
        await engine.journal.call(
            "end_scan", server_id, scan, engine.settings.discover_interval, is_whole, _json(report)
        )
    logger.info("server_scanned", extra={"server": server["name"], **report})
    return report


@contextlib.asynccontextmanager
async def _holding(engine: Engine, server_id: int, scan: int) -> AsyncIterator[Callable[[], bool]]:
    """Hold the lease of the scan on, however long a page takes; gives whether it is ours."""
    is_held = True

    async def beat() -> None:
        nonlocal is_held
        while is_held:
            await asyncio.sleep(SCAN_LEASE.total_seconds() / HEARTBEATS_PER_LEASE)
            try:
                is_held = await engine.journal.call("extend_scan", server_id, scan, SCAN_LEASE)
            except psycopg.Error as failure:
                logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})

    beating = asyncio.create_task(beat(), name="scan heartbeat")
    try:
        yield lambda: is_held
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


async def _see(engine: Engine, server_id: int, scan: int, page: list[Entry]) -> None:
    await engine.journal.call(
        "see",
        server_id,
        scan,
        [entry.path for entry in page],
        [shown_name(entry.path) for entry in page],
        [entry.attributes.size for entry in page],
        [entry.attributes.mtime for entry in page],
        [entry.done_for for entry in page],
    )


def _json(report: Row) -> object:
    from psycopg.types.json import Jsonb

    return Jsonb(report)
