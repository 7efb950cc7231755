"""One behaviour suite over both colours: tests await, and the blocking colour runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import psycopg
import pytest

from postroad.bus import AsyncBus, Bus

Colour = Literal["sync", "async"]


class Awaited:
    """Makes the methods of a blocking object awaitable, so that one test serves both colours."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.blocking, name)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return awaited


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture
async def bus(colour: Colour, database: str) -> AsyncIterator[Any]:
    """The bus with a pool of its own."""
    if colour == "sync":
        with Bus(database) as blocking:
            yield Awaited(blocking)
    else:
        async with AsyncBus(database) as awaiting:
            yield awaiting


@pytest.fixture
def transaction(colour: Colour, database: str) -> Callable[..., Any]:
    """A function that opens a caller's connection: `async with transaction() as (connection, bus)`.

    Leaving the block normally commits, leaving it by an exception rolls back.
    """

    @asynccontextmanager
    async def begin(**parameters: Any) -> AsyncIterator[tuple[Any, Any]]:
        if colour == "sync":
            blocking = psycopg.connect(database, **parameters)
            connection, bus = Awaited(blocking), Awaited(Bus(blocking))
        else:
            connection = await psycopg.AsyncConnection.connect(database, **parameters)
            bus = AsyncBus(connection)
        try:
            yield connection, bus
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            await connection.close()

    return begin


@pytest.fixture
def sight(database: str) -> Callable[..., list[Any]]:
    """A function that runs a statement in a transaction of its own and returns the rows."""

    def look(statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(database, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return look
