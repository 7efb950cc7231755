"""Holders: calls that hang, fail or break, and deadlines meanwhile."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from postroad.lease import Holder, Keeper
from postroad.service import LoopThread, Service
from postroad.testing import wait_until

TTL = timedelta(milliseconds=200)


class Owner(Service):
    def __init__(self, holder: Holder[int, str]) -> None:
        super().__init__("owner")
        self._holder = holder

    async def run(self) -> None:
        await self.supervise(self._holder)
        self.announce_ready()
        await self.stopping.wait()
        await self.stop_supervised()


def _keeper() -> Keeper[int, str]:
    return Keeper(TTL)


async def _nothing_lost(leases: Any) -> list[int]:
    return []


async def test_a_lease_is_lost_while_the_call_that_extends_it_hangs() -> None:
    silent, lost = asyncio.Event(), asyncio.Event()

    async def extend(leases: Any) -> list[int]:
        await silent.wait()
        return []

    holder = Holder(_keeper(), extend, lambda _: lost.set(), transient=(OSError,))
    async with holder:
        holder.claim([(1, "a")], holder.now())
        async with asyncio.timeout(20):
            await lost.wait()
        assert not holder.holds(1)
        silent.set()


def test_leases_that_other_threads_claim_and_finish_are_extended_acked_and_lost() -> None:
    extended, acked = threading.Event(), threading.Event()
    lost: list[str] = []

    async def extend(leases: dict[int, str]) -> list[int]:
        extended.set()
        return [1] if 1 in leases else []

    async def ack(leases: dict[int, str]) -> None:
        assert leases == {2: "b"}
        acked.set()

    holder = Holder(_keeper(), extend, lost.append, transient=(OSError,), ack=ack)
    with LoopThread(holder):
        holder.claim([(1, "a"), (2, "b")], holder.now())
        assert extended.wait(20)
        wait_until(lambda: lost == ["a"], what="the lease is lost")
        assert holder.holds(2)
        holder.finish(2)
        assert acked.wait(20)


async def test_a_transient_failure_is_repeated_and_nothing_is_lost() -> None:
    calls, acked, lost = [], asyncio.Event(), []

    async def ack(leases: dict[int, str]) -> None:
        calls.append(dict(leases))
        if len(calls) < 3:
            raise OSError("away")
        acked.set()

    holder = Holder(_keeper(), _nothing_lost, lost.append, transient=(OSError,), ack=ack)
    async with holder, asyncio.timeout(20):
        holder.claim([(1, "a")], holder.now())
        holder.finish(1)
        await acked.wait()
    assert calls == [{1: "a"}] * 3
    assert lost == []


async def test_what_is_finished_is_acked_before_the_end() -> None:
    acked: dict[int, str] = {}
    keeper: Keeper[int, str] = Keeper(TTL * 1000, ack_delay=TTL * 1000, ack_batch=100)

    async def ack(leases: dict[int, str]) -> None:
        acked.update(leases)

    async with Holder(keeper, _nothing_lost, print, transient=(OSError,), ack=ack) as holder:
        holder.claim([(1, "a")], holder.now())
        holder.finish(1)
    assert acked == {1: "a"}


async def test_the_last_acks_are_given_up_and_the_timer_ends() -> None:
    calls: list[dict[int, str]] = []
    keeper: Keeper[int, str] = Keeper(TTL * 1000, ack_delay=TTL * 1000, ack_batch=100)

    async def ack(leases: dict[int, str]) -> None:
        calls.append(dict(leases))
        raise OSError("away")

    holder = Holder(keeper, _nothing_lost, print, transient=(OSError,), ack=ack)
    async with asyncio.timeout(20), holder:
        holder.claim([(1, "a")], holder.now())
        holder.finish(1)
    assert calls == [{1: "a"}] * 3
    assert not holder._deadlines.is_running


async def test_a_holder_that_breaks_stops_its_owner() -> None:
    async def extend(leases: Any) -> list[int]:
        raise TypeError("broken")

    holder = Holder(_keeper(), extend, print, transient=(OSError,))
    owner = Owner(holder)
    await owner.start()
    await owner.ready()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(TypeError, match="broken"):
        async with asyncio.timeout(20):
            await owner.join()
    assert not owner.is_running
    assert not holder.is_running


@pytest.mark.parametrize("error", [TypeError, SystemExit])
def test_a_holder_that_breaks_ends_its_thread(error: type[BaseException]) -> None:
    async def extend(leases: Any) -> list[int]:
        raise error("broken")

    holder = Holder(_keeper(), extend, print, transient=(OSError,))
    thread = LoopThread(Owner(holder))
    thread.start()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(error, match="broken"):
        thread.join(20)
    assert not thread.is_running
    assert thread.stopping.is_set()


async def test_a_timer_that_breaks_stops_its_owner() -> None:
    def break_down(lease: str) -> None:
        raise TypeError(lease)

    async def extend(leases: Any) -> list[int]:
        raise OSError("away")

    holder = Holder(_keeper(), extend, break_down, transient=(OSError,))
    owner = Owner(holder)
    await owner.start()
    await owner.ready()
    holder.claim([(1, "a")], holder.now())
    with pytest.raises(TypeError):
        async with asyncio.timeout(20):
            await owner.join()
