"""The application that the workers of these tests serve; told by the environment where it lives."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.exceptions import Reject
from celery.signals import worker_ready

import postroad.broker

postroad.broker.register()

URL = os.environ.get("BROKER_TEST_URL", "mbus:///")
FOLDER = Path(os.environ.get("BROKER_TEST_FOLDER", "."))


def make_app(url: str) -> Celery:
    """Make the application on a broker; the tests and their workers make the same one."""
    app = Celery("tests.integration.broker.tasks", broker=url, backend=url)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_retry=True,
        worker_hijack_root_logger=False,
        worker_proc_alive_timeout=30,
        # Shorter than usual, so that tests of its end need not wait long.
        broker_transport_options={"lease_seconds": 3},
        beat_schedule={"often": {"task": "record", "schedule": 1.0, "args": ("run",)}},
    )
    return app


app = make_app(URL)


@worker_ready.connect
def crash_when_told(sender: Any, **_: object) -> None:
    """Make the loop of the worker raise once the test has created a file."""

    def crash() -> None:
        if (FOLDER / "crash").exists():
            raise RuntimeError("a defect of the worker")

    sender.hub.on_tick.add(crash)


def note(name: str, text: str) -> None:
    """Leave a line in a file, in one write, so that lines of several processes do not mix."""
    descriptor = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)


@app.task(name="add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="total")
def total(values: list[int]) -> int:
    return sum(values)


@app.task(name="fail")
def fail() -> None:
    raise ValueError("as asked")


@app.task(name="record", acks_late=True)
def record(text: str) -> str:
    note("records", text)
    return text


@app.task(name="linger", acks_late=True, bind=True)
def linger(self: Task, text: str) -> int:
    """Note the beginning, wait until the test allows the end, note the end."""
    note("begun", f"{text} {os.getpid()} {self.request.delivery_info['redelivered']}")
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    note("ended", text)
    return os.getpid()


@app.task(name="refuse", acks_late=True, bind=True)
def refuse(self: Task, requeue: bool) -> str:
    """Refuse the first time."""
    if self.request.delivery_info["redelivered"]:
        return "second time"
    raise Reject("as asked", requeue=requeue)


@app.task(name="retry", bind=True, max_retries=3)
def retry(self: Task) -> int:
    """Come back twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)
