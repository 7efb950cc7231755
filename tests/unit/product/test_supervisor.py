"""Services of one process: restarted when they fail, stopped in order, cancelled when they hang."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import pytest

from postroad.cli import supervisor as module
from postroad.cli.supervisor import ServicePlan, Supervised, Supervisor
from postroad.service import Service


class Steady(Service):
    """Runs until it is stopped."""

    async def run(self) -> None:
        self.announce_ready()
        await self.stopping.wait()


class Failing(Service):
    """Fails once it has run."""

    def __init__(self) -> None:
        super().__init__("one")
        self.fail = asyncio.Event()

    async def run(self) -> None:
        self.announce_ready()
        await self.fail.wait()
        self.end()

    def end(self) -> None:
        raise ValueError("broken")


class Hanging(Service):
    """Does not notice that it is to stop."""

    async def run(self) -> None:
        self.announce_ready()
        await asyncio.Event().wait()


class Cancelling(Failing):
    """Ends with a cancellation that nobody asked for."""

    def end(self) -> None:
        raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", timedelta(milliseconds=10))


async def test_a_service_that_does_not_become_ready_is_reported_with_its_last_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unready(Steady):
        async def run(self) -> None:
            if not is_repaired.is_set():
                raise ValueError("no such database")
            await super().run()

    monkeypatch.setattr(module, "REPORT_INTERVAL_SECONDS", 0.01)
    is_repaired, reports = asyncio.Event(), asyncio.Queue[str]()
    plans = ServicePlan("intake", Unready), ServicePlan("web", Steady)
    supervisor = Supervisor()
    starting = asyncio.create_task(supervisor.start(*plans))
    reporting = asyncio.create_task(supervisor.report_delays(reports.put_nowait))
    expected = "not ready yet: intake (ValueError: no such database)"
    async with asyncio.timeout(30):
        while await reports.get() != expected:
            assert not starting.done()
        is_repaired.set()
        await starting
    reporting.cancel()
    await supervisor.stop()


@pytest.mark.parametrize("first", [Failing, Cancelling])
async def test_a_service_that_fails_is_started_again(first: type[Failing]) -> None:
    made: list[Service] = []
    states: list[tuple[str, str | None]] = []
    runs_again = asyncio.Event()

    def make() -> Service:
        made.append(first() if not made else Steady("one"))
        return made[-1]

    def note() -> None:
        states.append((watched.state, watched.error))
        if watched.state == "running":
            made[-1].fail.set() if isinstance(made[-1], Failing) else runs_again.set()

    watched = Supervised(ServicePlan("one", make), note)
    async with watched:
        await runs_again.wait()
        assert (watched.pid, watched.error) == (os.getpid(), None)
    assert [state for state, _ in states] == [
        "starting", "running", "waiting", "starting", "running", "stopped",
    ]  # fmt: skip
    assert states[2][1] in ("ValueError: broken", "RuntimeError: one was cancelled")


async def test_one_that_cannot_be_made_is_tried_again() -> None:
    attempts = 0

    def make() -> Service:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("no database")
        return Steady("one")

    async with Supervised(ServicePlan("one", make), lambda: None) as watched:
        assert (watched.restarts, attempts) == (2, 3)


async def test_one_that_hangs_is_cancelled_and_the_others_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_SECONDS", 0.01)
    supervisor = Supervisor()
    await supervisor.start(ServicePlan("a", Hanging), ServicePlan("b", Steady, stage=1))
    services = [child.service for child in supervisor.children]
    await supervisor.stop()
    assert [service is not None and service.is_running for service in services] == [False, False]


async def test_the_failure_of_a_vital_service_ends_the_process() -> None:
    supervisor = Supervisor()
    failing = Failing()
    plan = ServicePlan("web", lambda: failing, is_vital=True)
    await supervisor.start(ServicePlan("a", Steady), plan)
    failing.fail.set()
    with pytest.raises(RuntimeError, match="web failed: ValueError: broken"):
        await supervisor.join_or(asyncio.Event())
    await supervisor.stop()
