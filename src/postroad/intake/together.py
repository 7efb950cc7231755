"""Tasks that end together, whose failure is the first error itself and not a group around it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

__all__ = ["together"]


@contextlib.asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """Give a task group; when one of its tasks fails the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
