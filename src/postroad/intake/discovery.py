"""Discovery: one scan of a server, written to the journal page by page.

```
begin_scan ── lease on the server's scan, kept by a heartbeat; a second discoverer gets none
  page ──> known?   as in the last scan, when all of its files were imported: nothing to do
           see      known versions are ignored, others are recorded as sightings; files that are
                    complete by the server's rules become rows: discovered
end_scan ── next scan after `scan_interval`; sightings of missing files are deleted
```

The lease of a discoverer that dies expires; the rows that it wrote stay. Two concurrent discoverers
write each row once, because a version is unique.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from psycopg.types.json import Jsonb

from postroad import trace
from postroad.clock import SYSTEM_CLOCK
from postroad.intake.claim import holder_of
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.keys import shown_name
from postroad.intake.listing import Entry, Listing, digest_of
from postroad.lease import Holder
from postroad.postgres.calls import Row

logger = logging.getLogger(__name__)

SCAN_LEASE = timedelta(seconds=60)


async def discover(engine: Engine, server_id: int) -> Row | None:
    """Scan one server once; returns the report, None if the server must not be scanned now.

    Raises SourceError, which is recorded. Files carry the current trace, or a new one.
    """
    with trace.following(trace.current() or trace.new()):
        return await _discover(engine, server_id)


async def _discover(engine: Engine, server_id: int) -> Row | None:
    began = SYSTEM_CLOCK.monotonic()
    scan = await engine.journal.change("begin_scan", server_id, SCAN_LEASE)
    if scan is None:
        return None
    server = await engine.server(server_id)
    report: Row = {"files": 0, "discovered": 0}
    is_whole = False
    try:
        async with engine.lend(server) as source, _hold(engine, server_id, scan, began) as holder:
            listing = Listing(source, server)
            known = set(await engine.journal.change("known_pages", server_id, scan))
            settled: list[bytes] = []
            async for page in listing.pages():
                digest = digest_of(page)
                if digest not in known:
                    discovered, waiting = await _record(engine, server_id, scan, page)
                    report["discovered"] += discovered
                if digest in known or not waiting:
                    settled.append(digest)
                if not holder.holds(server_id):
                    break
            else:
                is_whole = not listing.problems
            await engine.journal.change("save_pages", server_id, scan, settled)
        counted = ("files", "folders", "links_passed_over", "problems")
        report |= {name: getattr(listing, name) for name in counted}
    except SourceError as failure:
        report["problems"] = [failure.message]
        raise
    finally:
        report["seconds"] = round(SYSTEM_CLOCK.monotonic() - began, 3)
        interval = engine.settings.discover_interval
        given = server_id, scan, interval, is_whole, Jsonb(report)
        await engine.journal.change("end_scan", *given)
    logger.info("server_scanned", extra={"server": server["name"], **report})
    return report


def _hold(engine: Engine, server_id: int, scan: int, since: float) -> Holder[int, Row]:
    """Return the holder of the scan's lease, by the server's id."""

    async def extend(_: dict[int, Row]) -> list[int]:
        is_held = await engine.journal.change("extend_scan", server_id, scan, SCAN_LEASE)
        return [] if is_held else [server_id]

    holder = holder_of(SCAN_LEASE, extend)
    holder.claim([(server_id, {})], since)
    return holder


async def _record(engine: Engine, server_id: int, scan: int, page: list[Entry]) -> list[int]:
    rows = [(one.path, shown_name(one.path), one.size, one.mtime, one.done_for) for one in page]
    columns = map(list, zip(*rows, strict=True))
    counts: list[int] = await engine.journal.change("see", server_id, scan, *columns)
    return counts
