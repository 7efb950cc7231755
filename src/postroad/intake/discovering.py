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

import logging
from datetime import timedelta

import psycopg

from postroad import trace
from postroad.clock import SYSTEM_CLOCK
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.journal import Row
from postroad.intake.keys import shown_name
from postroad.intake.listing import Entry, Listing
from postroad.lease import AsyncHolder, Keeper

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
    began = SYSTEM_CLOCK.monotonic()
    scan = await engine.journal.call("begin_scan", server_id, SCAN_LEASE)
    if scan is None:
        return None
    server = await engine.server(server_id)
    report: Row = {"files": 0, "discovered": 0}
    is_whole = False
    try:
        async with engine.lend(server) as source, _hold(engine, server_id, scan, began) as holder:
            listing = Listing(source, server)
            pages = 0
            async for page in listing.pages():
                await _see(engine, server_id, scan, page)
                pages += 1
                if not holder.holds(server_id):
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


def _hold(engine: Engine, server_id: int, scan: int, since: float) -> AsyncHolder[int, int]:
    """Make the holder of the scan's lease, by the server's id."""

    async def extend(_: dict[int, int]) -> list[int]:
        is_held = await engine.journal.call("extend_scan", server_id, scan, SCAN_LEASE)
        return [] if is_held else [server_id]

    keeper: Keeper[int, int] = Keeper(SCAN_LEASE)
    holder = AsyncHolder(keeper, extend, lambda _: None, transient=(psycopg.Error, OSError))
    holder.claim([(server_id, scan)], since)
    return holder


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
