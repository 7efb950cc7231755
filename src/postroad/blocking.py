"""The same code for callers that await and callers that block.

The code is written as coroutines. A caller that blocks runs them with `finish`: on blocking
connections, events and threads nothing in them is ever suspended, so they need no event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait for an event loop; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of blocking code awaited an event loop")


async def resolved(value: Awaitable[T] | T) -> T:
    """Return the result of a call, awaited if necessary."""
    return await value if isinstance(value, Awaitable) else value


@asynccontextmanager
async def entered(
    manager: AbstractContextManager[T] | AbstractAsyncContextManager[T],
) -> AsyncIterator[T]:
    """Enter a context manager of either kind."""
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value
