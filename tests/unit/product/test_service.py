from __future__ import annotations

import asyncio

import pytest

from postroad.service import LoopThread, Service


class Steady(Service):
    async def run(self) -> None:
        self.announce_ready()
        self.signals.emit("running", 1)
        await self.stopping.wait()
        self.signals.emit("stopped")


class Broken(Service):
    async def run(self) -> None:
        raise ValueError("broken")


async def test_a_service_runs_until_it_is_stopped() -> None:
    service = Steady()
    service.signals.listen("running", "stopped")
    async with service:
        assert await service.signals.wait("running") == 1
        assert service.is_running
    await service.signals.wait("stopped")
    assert not service.is_running


async def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    service = Steady()
    await service.stop()
    await service.start()
    assert not service.is_running
    other = Steady()
    await other.start()
    await other.start()
    await asyncio.gather(other.stop(), other.stop())
    await other.stop()


async def test_a_service_that_fails_says_so_to_whoever_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Broken()
    await service.start()
    with pytest.raises(ValueError, match="broken"):
        await service.ready()
    with pytest.raises(ValueError, match="broken"):
        await service.stop()
    assert "service_failed" in caplog.text


async def test_signals_without_a_listener_do_nothing() -> None:
    service = Steady()
    service.signals.emit("running")
    service.signals.listen("running")
    with pytest.raises(TimeoutError):
        await service.signals.wait("running", timeout_seconds=0)


async def test_a_pause_ends_at_once_when_the_service_is_to_stop() -> None:
    service = Steady()
    assert not await service.pause(0)
    service.stopping.set()
    assert await service.pause(3600)


class Slow(Service):
    """Never ready."""

    async def run(self) -> None:
        self.signals.emit("running")
        await asyncio.Event().wait()


async def test_a_cancelled_waiter_for_the_start_leaves_no_task() -> None:
    service = Slow()
    service.signals.listen("running")

    async def enter() -> None:
        async with service:
            pass

    waiter = asyncio.create_task(enter())
    await service.signals.wait("running")
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not service.is_running


class Short(Service):
    """Ends without being asked to."""

    async def run(self) -> None:
        self.announce_ready()


class Owner(Service):
    def __init__(self, part: Service) -> None:
        super().__init__("owner")
        self._part = part

    async def run(self) -> None:
        await self.supervise(self._part)
        await self.stopping.wait()
        await self.stop_supervised()


class Exiting(Service):
    async def run(self) -> None:
        raise SystemExit(3)


def test_a_part_that_exits_ends_the_thread_of_its_supervisor() -> None:
    part = Exiting("part")
    thread = LoopThread(Owner(part))
    thread.start()
    with pytest.raises(SystemExit):
        thread.join(20)
    # The event loop does not report the error once more.
    assert part._task is not None
    assert not part._task._log_traceback  # type: ignore[attr-defined]


@pytest.mark.parametrize(("part", "error"), [(Broken, ValueError), (Short, RuntimeError)])
async def test_a_part_that_ends_stops_its_supervisor(
    part: type[Service], error: type[Exception]
) -> None:
    owner = Owner(part())
    await owner.start()
    with pytest.raises(error):
        async with asyncio.timeout(20):
            await owner.join()
    assert not owner.is_running


class Orphan(Service):
    """Awaits a task that somebody cancelled."""

    async def run(self) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task


async def test_a_part_that_awaits_a_cancelled_task_stops_its_supervisor() -> None:
    owner = Owner(Orphan())
    await owner.start()
    with pytest.raises(RuntimeError, match="was cancelled"):
        await asyncio.wait_for(owner.join(), 20)
    assert not owner.is_running


async def test_a_service_that_is_cancelled_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Slow()
    await service.start()
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service.join()
    assert "service_failed" not in caplog.text
