"""Holders of both colours: calls that hang, fail or break, and deadlines meanwhile."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from postroad.lease import AsyncHolder, Holder, Keeper
from postroad.service import Service, ThreadService
from postroad.testing import wait_until

TTL = timedelta(milliseconds=200)


class Owner(ThreadService):
    def __init__(self, holder: Holder[int, str]) -> None:
        super().__init__("owner")
        self._holder = holder

    def run(self) -> None:
        self.supervise(self._holder)
        self.announce_ready()
        self.stopping.wait()
        self.stop_supervised()


class AsyncOwner(Service):
    def __init__(self, holder: AsyncHolder[int, str]) -> None:
        super().__init__("owner")
        self._holder = holder

    async def run(self) -> None:
        await self.supervise(self._holder)
        self.announce_ready()
        await self.stopping.wait()
        await self.stop_supervised()


def _keeper() -> Keeper[int, str]:
    return Keeper(TTL)


def test_a_lease_is_lost_while_the_call_that_extends_it_hangs() -> None:
    silent, asked, lost = threading.Event(), threading.Event(), []

    def extend(leases: Any) -> list[int]:
        asked.set()
        silent.wait()
        return []

    holder = Holder(_keeper(), extend, lost.append, transient=(OSError,))
    with holder:
        holder.claim([(1, "a")], holder.now())
        assert asked.wait(20)
        wait_until(lambda: lost == ["a"], what="the lease is lost")
        assert not holder.holds(1)
        silent.set()


async def test_a_lease_is_lost_while_the_awaited_call_that_extends_it_hangs() -> None:
    silent, lost = asyncio.Event(), asyncio.Event()

    async def extend(leases: Any) -> list[int]:
        await silent.wait()
        return []

    holder = AsyncHolder(_keeper(), extend, lambda _: lost.set(), transient=(OSError,))
    async with holder:
        holder.claim([(1, "a")], holder.now())
        async with asyncio.timeout(20):
            await lost.wait()
        silent.set()


def test_a_transient_failure_is_repeated_and_nothing_is_lost() -> None:
    calls, acked, lost = [], threading.Event(), []

    def extend(leases: Any) -> list[int]:
        return []

    def ack(leases: dict[int, str]) -> None:
        calls.append(dict(leases))
        if len(calls) < 3:
            raise OSError("away")
        acked.set()

    with Holder(_keeper(), extend, lost.append, transient=(OSError,), ack=ack) as holder:
        holder.claim([(1, "a")], holder.now())
        holder.finish(1)
        assert acked.wait(20)
    assert calls == [{1: "a"}] * 3
    assert lost == []


def test_what_is_finished_is_acked_before_the_end() -> None:
    acked: dict[int, str] = {}
    keeper: Keeper[int, str] = Keeper(TTL * 1000, ack_delay=TTL * 1000, ack_batch=100)
    holder = Holder(keeper, lambda _: [], print, transient=(OSError,), ack=acked.update)
    with holder:
        holder.claim([(1, "a")], holder.now())
        holder.finish(1)
    assert acked == {1: "a"}


@pytest.mark.parametrize("error", [TypeError, SystemExit])
def test_a_holder_that_breaks_stops_its_owner(error: type[BaseException]) -> None:
    def extend(leases: Any) -> list[int]:
        raise error("broken")

    holder = Holder(_keeper(), extend, print, transient=(OSError,))
    owner = Owner(holder)
    owner.start()
    owner.ready()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(error, match="broken"):
        owner.join(20)
    assert not owner.is_running
    assert not holder.is_running


async def test_an_awaiting_holder_that_breaks_stops_its_owner() -> None:
    async def extend(leases: Any) -> list[int]:
        raise TypeError("broken")

    holder = AsyncHolder(_keeper(), extend, print, transient=(OSError,))
    owner = AsyncOwner(holder)
    await owner.start()
    await owner.ready()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(TypeError, match="broken"):
        async with asyncio.timeout(20):
            await owner.join()
    assert not holder.is_running


def test_a_timer_that_breaks_stops_its_owner() -> None:
    def break_down(lease: str) -> None:
        raise TypeError(lease)

    def extend(leases: Any) -> list[int]:
        raise OSError("away")

    holder = Holder(_keeper(), extend, break_down, transient=(OSError,))
    owner = Owner(holder)
    owner.start()
    owner.ready()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(TypeError):
        owner.join(20)
