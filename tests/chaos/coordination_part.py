"""One part of coordination as a process of its own, to be killed, or to end itself at a border.

A *border* is a call of the database that changed something: when it returns, a transaction has just
been committed or is about to be. `die_at` is the number of the border at which the process is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from psycopg import AsyncCursor

from postroad.coordination import Coordinator, Reader, Writer
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.service import Service, Together

QUICK = timedelta(milliseconds=500)
# Calls that have always changed something; of the others the first value tells.
ALWAYS = ("coordination.stage(", "coordination.vote(", "coordination.announce(")
COUNTED = ("coordination.publish(", "coordination.receive(", "coordination.settle(")
COUNTED += ("coordination.finish(", "coordination.attend(", "bridge.take(", "bridge.receive(")


def run_part(
    part: str, dsns: dict[str, str], log: str, die_at: int | None, page: int, deadline: timedelta
) -> None:
    """Run until killed; what it has to say goes to the log."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    if die_at is not None:
        _count_borders(die_at)
    asyncio.run(_serve(part, dsns, page, deadline))


def _services(part: str, dsns: dict[str, str], page: int, deadline: timedelta) -> list[Service]:
    writer, coordinator = dsns["writer"], dsns["coordinator"]
    if part == "writer":
        return [Writer(writer, resend=QUICK), *writer_bridges(writer, coordinator)]
    if part == "coordinator":
        return [Coordinator(coordinator, ask=QUICK, deadline=deadline, watch_interval=QUICK)]
    return [
        # Nothing is parked for good: nobody is there to have it tried again.
        Reader(dsns[part], writer, repeat=QUICK, page=page, max_attempts=1_000_000),
        *reader_bridges(part, dsns[part], coordinator),
    ]


async def _serve(part: str, dsns: dict[str, str], page: int, deadline: timedelta) -> None:
    async with Together(part, _services(part, dsns, page, deadline)) as together:
        await together.join()


def _count_borders(die_at: int) -> None:
    execute = AsyncCursor.execute
    passed = 0

    async def counted(self: AsyncCursor[Any], query: Any, *given: Any, **options: Any) -> Any:
        nonlocal passed
        done = await execute(self, query, *given, **options)
        text = query.decode() if isinstance(query, bytes) else str(query)
        if _changed_something(self, text):
            passed += 1
            if passed == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return done

    AsyncCursor.execute = counted  # type: ignore[method-assign]


def _changed_something(cursor: AsyncCursor[Any], text: str) -> bool:
    if any(name in text for name in ALWAYS):
        return True
    if not any(name in text for name in COUNTED):
        return False
    result = cursor.pgresult
    return (
        result is not None
        and result.ntuples > 0
        and result.get_value(0, 0) not in (None, b"", b"0", b"f", b"\0", bytes(4), bytes(8))
    )
