"""Subscriptions wait for messages, and lose none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import psycopg.sql
import pytest

from postroad.bus import Bus, InvalidArgument
from postroad.testing import wait_until_async

LONG = timedelta(hours=1)


class Subscribed:
    """Drives a subscription of either colour."""

    def __init__(self, bus: Any, *args: Any, **kwargs: Any) -> None:
        self._is_blocking = hasattr(bus, "blocking")
        maker = bus.blocking if self._is_blocking else bus
        self.subscription = maker.subscribe(*args, **kwargs)

    async def next(self) -> Any:
        if self._is_blocking:
            return await asyncio.to_thread(next, self.subscription, None)
        return await anext(self.subscription, None)

    async def close(self) -> None:
        if self._is_blocking:
            await asyncio.to_thread(self.subscription.close)
        else:
            await self.subscription.close()

    async def leave(self, error: Exception | None) -> None:
        kind = None if error is None else type(error)
        if self._is_blocking:
            await asyncio.to_thread(self.subscription.__exit__, kind, error, None)
        else:
            await self.subscription.__aexit__(kind, error, None)


async def _state(bus: Any) -> tuple[int, int, int]:
    [status] = await bus.status("orders")
    return status.ready, status.leased, status.delayed


async def test_a_waiting_subscriber_is_woken_by_a_post_elsewhere(bus, database):
    await bus.create_queue("orders", payload="text")
    # Only a notice can be quick here: the probe is an hour away.
    subscribed = Subscribed(bus, "orders", poll_interval=LONG)
    waiting = asyncio.create_task(subscribed.next())
    with Bus(database) as other:
        await wait_until_async(
            lambda: asyncio.to_thread(_is_listening, database), what="somebody listens"
        )
        await asyncio.to_thread(other.post, "orders", "x")
        async with asyncio.timeout(10):
            message = await waiting
    assert message.data == "x"
    await subscribed.leave(None)
    assert await _state(bus) == (0, 0, 0)


def _is_listening(database: str) -> bool:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where application_name = 'postroad listen'"
            " and datname = current_database() and query ilike 'listen%'"
        ).fetchone()
        return row[0] > 0


async def test_polling_alone_finds_messages_too(bus, transaction):
    await bus.create_queue("orders", payload="text")
    subscribed = Subscribed(bus, "orders", poll_interval=timedelta(milliseconds=10))
    waiting = asyncio.create_task(subscribed.next())
    async with transaction() as (_, mine):
        await mine.post("orders", "x")
    assert (await waiting).data == "x"
    await subscribed.leave(None)


async def test_asking_for_the_next_message_acks_the_one_before(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post_many("orders", ["a", "b"])
    subscribed = Subscribed(bus, "orders")
    assert (await subscribed.next()).data == "a"
    assert await _state(bus) == (1, 1, 0)
    assert (await subscribed.next()).data == "b"
    assert await _state(bus) == (0, 1, 0)
    await subscribed.close()
    assert await subscribed.next() is None
    assert await _state(bus) == (0, 0, 0)


async def test_a_block_left_by_an_exception_gives_the_message_back(bus):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "a")
    subscribed = Subscribed(bus, "orders")
    await subscribed.next()
    await subscribed.leave(ZeroDivisionError("oh"))
    assert await _state(bus) == (0, 0, 1)


async def test_an_abandoned_subscription_loses_nothing(bus, clock):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "a")
    subscribed = Subscribed(bus, "orders", ttl=timedelta(minutes=1))
    await subscribed.next()
    await subscribed.close()
    assert await _state(bus) == (0, 1, 0)
    clock.advance(timedelta(minutes=2))
    assert [m.data for m in await bus.consume("orders")] == ["a"]


async def test_a_lost_lease_does_not_end_the_subscription(bus, clock):
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "a")
    subscribed = Subscribed(bus, "orders", ttl=timedelta(minutes=1))
    await subscribed.next()
    clock.advance(timedelta(minutes=2))
    again = await subscribed.next()
    assert (again.data, again.attempt) == ("a", 2)
    await subscribed.leave(None)


async def test_a_subscription_outlasts_a_server_that_only_reads(bus, database, caplog):
    """As a server does that was demoted a moment ago, behind a proxy that does not know it yet."""
    await bus.create_queue("orders", payload="text")
    await bus.post("orders", "a")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as admin:
        name = psycopg.sql.Identifier(admin.info.dbname)
        await _end_other_sessions(
            admin, psycopg.sql.SQL("alter database {} set default_transaction_read_only = on"), name
        )
        subscribed = Subscribed(bus, "orders")
        waiting = asyncio.create_task(subscribed.next())

        async def is_refused() -> bool:
            reasons = [getattr(one, "reason", "") for one in caplog.records]
            return waiting.done() or any("read-only" in one for one in reasons)

        await wait_until_async(is_refused, what="the lease is refused")
        await _end_other_sessions(
            admin, psycopg.sql.SQL("alter database {} reset default_transaction_read_only"), name
        )
    assert (await waiting).data == "a"
    await subscribed.leave(None)


async def _end_other_sessions(
    admin: psycopg.AsyncConnection[Any],
    statement: psycopg.sql.SQL,
    database: psycopg.sql.Identifier,
) -> None:
    await admin.execute(statement.format(database))
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )


async def test_a_callers_connection_cannot_wait(transaction, bus):
    await bus.create_queue("orders", payload="text")
    async with transaction() as (_, mine):
        with pytest.raises(InvalidArgument, match="own"):
            getattr(mine, "blocking", mine).subscribe("orders")
