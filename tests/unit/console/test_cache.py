"""Cache are shared, and dear ones are rarer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from postroad.clock import Clock
from postroad.console.cache import MAX_AGE_SECONDS, MAX_SHARE, Cache


class HandClock(Clock):
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


async def test_ten_who_ask_at_once_cost_one_look() -> None:
    looks, made = Cache(HandClock()), 0

    async def load() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return made

    assert await asyncio.gather(*(looks.get("key", load) for _ in range(10))) == [1] * 10


async def test_a_look_is_made_again_when_it_is_too_old_or_forgotten() -> None:
    clock = HandClock()
    looks = Cache(clock)
    values = iter(range(10))

    async def load() -> int:
        return next(values)

    assert await looks.get("key", load, 2) == 0
    clock.seconds = 1.9
    assert await looks.get("key", load, 2) == 0
    clock.seconds = 2.1
    assert await looks.get("key", load, 2) == 1
    looks.forget("key")
    assert await looks.get("key", load, 2) == 2


async def test_a_dear_look_is_repeated_so_rarely_that_its_share_stays_small() -> None:
    clock = HandClock()
    looks, made = Cache(clock), 0

    async def load() -> int:
        nonlocal made
        made += 1
        clock.seconds += 0.5
        return made

    while clock.seconds < 1_000:
        await looks.get("key", load, 2)
        clock.seconds += 0.1
    # The second look is early: what one takes is known from two.
    assert (made - 1) * 0.5 / clock.seconds <= MAX_SHARE


@pytest.mark.parametrize("slow", [0, 3], ids=["the-first", "a-later-one"])
async def test_one_slow_look_does_not_freeze_what_is_shown(slow: int) -> None:
    clock = HandClock()
    looks, made = Cache(clock), 0

    async def load() -> int:
        nonlocal made
        clock.seconds += 30.0 if made == slow else 0.01
        made += 1
        return made

    for _ in range(6):
        before = made
        await looks.get("key", load, 2)
        clock.seconds += 2.1
        assert made == before + 1


async def test_what_is_always_slow_is_looked_at_once_a_minute() -> None:
    clock = HandClock()
    looks, made = Cache(clock), 0

    async def load() -> int:
        nonlocal made
        made += 1
        clock.seconds += 10.0
        return made

    for _ in range(2):
        await looks.get("key", load, 2)
        clock.seconds += 3
    clock.seconds += MAX_AGE_SECONDS
    assert await looks.get("key", load, 2) == 3


async def test_a_look_that_failed_is_tried_again() -> None:
    clock = HandClock()
    looks = Cache(clock)

    async def fail() -> int:
        raise OSError

    async def load() -> int:
        return 7

    with pytest.raises(OSError):
        await looks.get("key", fail)
    with pytest.raises(OSError):
        await looks.get("key", load)
    clock.seconds = 1.5
    assert await looks.get("key", load) == 7


async def test_only_so_many_looks_are_kept() -> None:
    clock = HandClock()
    looks = Cache(clock)

    async def load() -> int:
        return 1

    for number in range(2_000):
        clock.seconds += 1
        await looks.get(number, load)
    assert len(looks._entries) <= 501


async def test_a_session_is_never_older_than_its_age_however_slow_the_database() -> None:
    clock = HandClock()
    looks = Cache(clock)
    loading, release = asyncio.Event(), asyncio.Event()
    value = "signed in"

    async def slow() -> str:
        clock.seconds += 5
        return value

    async def hanging() -> str:
        loading.set()
        await release.wait()
        return value

    for _ in range(3):
        clock.seconds += 100
        await looks.get("session", slow, 2, is_strict=True)
    value = "revoked"
    clock.seconds += 3
    first = asyncio.create_task(looks.get("session", hanging, 2, is_strict=True))
    await loading.wait()
    second = asyncio.create_task(looks.get("session", hanging, 2, is_strict=True))
    await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(first, second) == ["revoked", "revoked"]


async def test_a_change_makes_every_value_be_read_again() -> None:
    clock = HandClock()
    looks = Cache(clock)
    values = iter(range(10))

    async def load() -> int:
        return next(values)

    assert [await looks.get(key, load) for key in ("one", "two")] == [0, 1]
    looks.expire()
    clock.seconds = 1.0
    assert [await looks.get(key, load) for key in ("one", "two")] == [2, 3]
    assert looks.loaded_at("one") == clock.now()
    assert looks.loaded_at("three") is None
