"""Notifications are gathered, and their failure affects nobody."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import psycopg

from postroad.bus.notifier import Notifier
from postroad.service import OnDemand, OnDemandThread

LONG = timedelta(hours=1)


def test_the_first_is_sent_at_once_and_the_rest_together() -> None:
    sent: list[list[str]] = []
    first = threading.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()

    notifier = OnDemandThread(lambda: Notifier(send, LONG))
    notifier.started().announce("a")
    assert first.wait(10)
    for queue in ("b", "a", "b"):
        notifier.started().announce(queue)
    notifier.stop()
    notifier.stop()
    assert sent == [["a"], ["a", "b"]]


def test_a_failure_to_notify_is_nobodys() -> None:
    tried = threading.Event()

    async def send(queues: list[str]) -> None:
        tried.set()
        raise psycopg.OperationalError("gone")

    notifier = OnDemandThread(lambda: Notifier(send))
    notifier.started().announce("a")
    assert tried.wait(10)
    notifier.started().announce("a")
    notifier.stop()


def test_it_starts_again_after_it_was_stopped() -> None:
    sent: list[list[str]] = []

    async def send(queues: list[str]) -> None:
        sent.append(queues)

    notifier = OnDemandThread(lambda: Notifier(send))
    for queue in ("a", "b"):
        notifier.started().announce(queue)
        notifier.stop()
    assert sent == [["a"], ["b"]]


async def test_a_notifier_of_the_event_loop_gathers_too() -> None:
    sent: list[list[str]] = []
    first = asyncio.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()
        if len(sent) == 1:
            raise psycopg.OperationalError("gone")

    notifier = OnDemand(lambda: Notifier(send, timedelta(0)))
    for queue in ("b", "a", "b"):
        notifier.started().announce(queue)
    await first.wait()
    notifier.started().announce("c")
    await notifier.stop()
    await notifier.stop()
    assert sent == [["a", "b"], ["c"]]
