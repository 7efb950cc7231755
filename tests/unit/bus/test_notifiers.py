"""Wake-up calls are gathered, and their failure is nobody's."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import psycopg

from postroad.bus.notifier import AsyncNotifier, Notifier

LONG = timedelta(hours=1)


def test_the_first_is_sent_at_once_and_the_rest_together() -> None:
    sent: list[list[str]] = []
    first = threading.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()

    notifier = Notifier(send, LONG)
    notifier.announce("a")
    assert first.wait(10)
    for queue in ("b", "a", "b"):
        notifier.announce(queue)
    notifier.close()
    notifier.close()
    assert sent == [["a"], ["a", "b"]]


def test_a_failure_to_notify_is_nobodys() -> None:
    tried = threading.Event()

    async def send(queues: list[str]) -> None:
        tried.set()
        raise psycopg.OperationalError("gone")

    notifier = Notifier(send)
    notifier.announce("a")
    assert tried.wait(10)
    notifier.announce("a")
    notifier.close()


async def test_the_async_notifier_gathers_too() -> None:
    sent: list[list[str]] = []
    first = asyncio.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()
        if len(sent) == 1:
            raise psycopg.OperationalError("gone")

    notifier = AsyncNotifier(send, timedelta(0))
    for queue in ("b", "a", "b"):
        notifier.announce(queue)
    await first.wait()
    notifier.announce("c")
    await notifier.close()
    await notifier.close()
    assert sent == [["a", "b"], ["c"]]
