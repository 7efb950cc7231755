"""Notifications are gathered, and their failure affects nobody."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import psycopg

from postroad.blocking import finish
from postroad.bus.notifier import Notifier

LONG = timedelta(hours=1)


def test_the_first_is_sent_at_once_and_the_rest_together() -> None:
    sent: list[list[str]] = []
    first = threading.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()

    notifier = Notifier(send, LONG, blocks=True)
    notifier.announce("a")
    assert first.wait(10)
    for queue in ("b", "a", "b"):
        notifier.announce(queue)
    finish(notifier.close())
    finish(notifier.close())
    assert sent == [["a"], ["a", "b"]]


def test_a_failure_to_notify_is_nobodys() -> None:
    tried = threading.Event()

    async def send(queues: list[str]) -> None:
        tried.set()
        raise psycopg.OperationalError("gone")

    notifier = Notifier(send, blocks=True)
    notifier.announce("a")
    assert tried.wait(10)
    notifier.announce("a")
    finish(notifier.close())


def test_it_starts_again_after_it_was_stopped() -> None:
    sent: list[list[str]] = []

    async def send(queues: list[str]) -> None:
        sent.append(queues)

    notifier = Notifier(send, blocks=True)
    for queue in ("a", "b"):
        notifier.announce(queue)
        finish(notifier.close())
    assert sent == [["a"], ["b"]]


async def test_a_notifier_of_the_event_loop_gathers_too() -> None:
    sent: list[list[str]] = []
    first = asyncio.Event()

    async def send(queues: list[str]) -> None:
        sent.append(queues)
        first.set()
        if len(sent) == 1:
            raise psycopg.OperationalError("gone")

    notifier = Notifier(send, timedelta(0))
    for queue in ("b", "a", "b"):
        notifier.announce(queue)
    await first.wait()
    notifier.announce("c")
    await notifier.close()
    await notifier.close()
    assert sent == [["a", "b"], ["c"]]


def test_the_notifier_of_a_blocking_bus_needs_no_event_loop() -> None:
    loops: list[bool] = []

    async def send(queues: list[str]) -> None:
        # gevent runs all threads in one, which permits a single running loop.
        loops.append(asyncio._get_running_loop() is not None)

    notifier = Notifier(send, blocks=True)
    notifier.announce("a")
    finish(notifier.close())
    assert loops == [False]
