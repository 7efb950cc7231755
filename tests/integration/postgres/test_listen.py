from __future__ import annotations

import asyncio

import psycopg
import pytest

from postroad.postgres import ListenHub, Notice
from postroad.testing import TestServer


async def _notify(dsn: str, channel: str, payload: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("select pg_notify(%s, %s)", (channel, payload))


async def _next(heard: asyncio.Queue[Notice]) -> Notice:
    async with asyncio.timeout(20):
        return await heard.get()


async def test_subscribers_hear_their_channel_after_a_first_interruption(
    empty_database: str,
) -> None:
    heard: asyncio.Queue[Notice] = asyncio.Queue()
    other: asyncio.Queue[Notice] = asyncio.Queue()
    async with ListenHub(empty_database) as hub:
        hub.subscribe("mbus", heard.put_nowait)
        hub.subscribe("else", other.put_nowait)
        assert (await _next(heard)).is_interruption
        assert (await _next(other)).is_interruption
        await _notify(empty_database, "mbus", "orders")
        assert await _next(heard) == Notice("mbus", "orders")
        assert other.empty()


async def test_a_late_subscriber_is_reported_to_look_once(empty_database: str) -> None:
    first: asyncio.Queue[Notice] = asyncio.Queue()
    late: asyncio.Queue[Notice] = asyncio.Queue()
    async with ListenHub(empty_database) as hub:
        hub.subscribe("mbus", first.put_nowait)
        await _next(first)
        hub.subscribe("mbus", late.put_nowait)
        assert (await _next(late)).is_interruption
        assert first.empty()


async def test_a_cancelled_subscription_hears_nothing_more(empty_database: str) -> None:
    gone: asyncio.Queue[Notice] = asyncio.Queue()
    stays: asyncio.Queue[Notice] = asyncio.Queue()
    async with ListenHub(empty_database) as hub:
        subscription = hub.subscribe("mbus", gone.put_nowait)
        hub.subscribe("mbus", stays.put_nowait)
        await _next(gone)
        await _next(stays)
        subscription.cancel()
        subscription.cancel()
        await _notify(empty_database, "mbus", "orders")
        await _next(stays)
        assert gone.empty()


async def test_one_subscribers_mistake_does_not_make_others_deaf(empty_database: str) -> None:
    heard: asyncio.Queue[Notice] = asyncio.Queue()

    def broken(notice: Notice) -> None:
        raise ValueError(notice)

    async with ListenHub(empty_database) as hub:
        hub.subscribe("mbus", broken)
        hub.subscribe("mbus", heard.put_nowait)
        assert (await _next(heard)).is_interruption


@pytest.mark.chaos
async def test_a_lost_connection_is_opened_again_and_subscribers_are_told(
    empty_database: str,
) -> None:
    heard: asyncio.Queue[Notice] = asyncio.Queue()
    hub = ListenHub(empty_database)
    hub.signals.listen("lost")
    async with hub:
        hub.subscribe("mbus", heard.put_nowait)
        await _next(heard)
        async with await psycopg.AsyncConnection.connect(empty_database) as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'postroad listen' and datname = current_database()"
            )
        await hub.signals.wait("lost")
        assert (await _next(heard)).is_interruption
        await _notify(empty_database, "mbus", "orders")
        assert await _next(heard) == Notice("mbus", "orders")


@pytest.mark.chaos
@pytest.mark.both_versions
async def test_the_hub_survives_a_restart_of_the_server(own_server: TestServer) -> None:
    heard: asyncio.Queue[Notice] = asyncio.Queue()
    hub = ListenHub(own_server.dsn("postgres"))
    hub.signals.listen("lost")
    async with hub:
        hub.subscribe("mbus", heard.put_nowait)
        await _next(heard)
        await asyncio.to_thread(own_server.stop)
        await hub.signals.wait("lost")
        await asyncio.to_thread(own_server.start)
        assert (await _next(heard)).is_interruption


async def test_a_hub_stops_while_the_database_is_away() -> None:
    hub = ListenHub("host=127.0.0.1 port=1 dbname=nowhere")
    hub.signals.listen("lost")
    await hub.start()
    await hub.signals.wait("lost")
    await hub.stop()
    assert not hub.is_running
