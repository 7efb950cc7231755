"""Disks and clock are watched; what they find is raised once and cleared."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from postroad.alerts import ClockWatcher, DiskWatcher, PauseWatcher
from postroad.alerts.resources import ALERTS

Usage = namedtuple("Usage", ("total", "used", "free"))
FOLDER = Path("/somewhere")


@pytest.fixture
async def session(database: str) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        yield connection


async def titles(session: AsyncConnection) -> list[str]:
    return [one["title"] for one in await ALERTS.all(session)]


async def test_a_disk_is_reported_once_until_it_is_well_again(
    database: str, session: AsyncConnection
) -> None:
    free = [50]
    watcher = DiskWatcher(
        database, [FOLDER], least_free_percent=10, usage=lambda _: Usage(100, 0, free[0])
    )
    seen = []
    for free[0] in (50, 9, 9, 10.5, 4, 4, 11.5):
        await watcher.check(session)
        seen.append([(a["severity"], a["count"]) for a in await ALERTS.all(session)])
    once, worse = [("error", 1)], [("critical", 2)]
    assert seen == [[], once, once, once, worse, worse, []]


async def test_a_folder_that_cannot_be_looked_at_is_reported(
    database: str, session: AsyncConnection, tmp_path: Path
) -> None:
    watcher = DiskWatcher(database, [tmp_path / "missing"])
    await watcher.check(session)
    assert await titles(session) == [f"the folder {tmp_path / 'missing'} cannot be read"]


async def test_a_real_disk_is_looked_at_by_the_service(database: str, tmp_path: Path) -> None:
    async with DiskWatcher(database, [tmp_path], least_free_percent=99.999):
        pass
    async with await AsyncConnection.connect(database, autocommit=True) as session:
        (title,) = await titles(session)
    assert title.startswith(f"the disk of {tmp_path} is nearly full")


async def test_a_jump_of_the_clock_is_reported_and_cleared_when_it_is_calm(
    database: str, session: AsyncConnection
) -> None:
    import time

    shift, steady = [0.0], [0.0]
    watcher = ClockWatcher(
        database,
        calm=timedelta(minutes=10),
        wall=lambda: time.time() + shift[0],
        steady=lambda: time.time() + steady[0],
    )
    await watcher.check(session)
    assert await titles(session) == []
    shift[0] = 86400.0
    await watcher.check(session)
    found = await titles(session)
    assert any("jumped by +86,400 s" in title for title in found)
    assert any("the database differ by +86,400 s" in title for title in found)
    shift[0] = 0.0
    await watcher.check(session)
    assert [title for title in await titles(session) if "differ" in title] == []
    assert any("jumped by -86,400 s" in title for title in await titles(session))
    steady[0] = shift[0] = 601.0
    # The database's clock is the real one; only the jump is looked at.
    await watcher._check_jump(session)
    assert await titles(session) == []


async def test_a_pause_is_reported_once_when_it_is_forgotten_and_cleared_when_it_ends(
    database: str, session: AsyncConnection
) -> None:
    await session.execute("select mbus.create_queue('orders'), mbus.create_queue('stock')")
    await session.execute("select mbus.pause('orders', reason => 'the ERP is down')")
    await session.execute("select mbus.pause('stock', 'default')")
    await PauseWatcher(database).check(session)
    assert await titles(session) == []
    watcher = PauseWatcher(database, limit=timedelta(0))
    for _ in range(2):
        await watcher.check(session)
        found = {one["key"]: one for one in await ALERTS.all(session)}
        assert {key: one["count"] for key, one in found.items()} == {
            "bus/paused/orders": 1,
            "bus/paused/stock/default": 1,
        }
    assert found["bus/paused/orders"]["title"].startswith("orders has been paused since 2")
    assert found["bus/paused/orders"]["body"].endswith(
        ": the ERP is down. Resume it: postroad bus resume orders"
    )
    assert found["bus/paused/stock/default"]["body"].endswith(" stock --consumer default")
    await session.execute("select mbus.resume('orders')")
    await watcher.check(session)
    assert [one["key"] for one in await ALERTS.all(session)] == ["bus/paused/stock/default"]
