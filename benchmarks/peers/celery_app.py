"""The Celery application that is measured on every broker; the environment names the broker."""

from __future__ import annotations

import json
import os
import time

from celery import Celery

URL = os.environ["BENCHMARK_BROKER"]
if URL.startswith("mbus"):
    import postroad.broker

    postroad.broker.register()

app = Celery("benchmarks.peers.celery_app", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=4,
    # Of one run alone: what a slow broker leaves undone is nobody's.
    task_default_queue=os.environ.get("BENCHMARK_QUEUE", "celery"),
    broker_transport_options=json.loads(os.environ.get("BENCHMARK_OPTIONS", "{}")),
)


@app.task
def tick() -> None:
    """Leave a mark that costs the same on every broker."""
    descriptor = os.open(os.environ["BENCHMARK_MARKS"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)


@app.task
def stamp(number: int, published: float) -> None:
    """Leave a line: which task, when it was published, when it began."""
    descriptor = os.open(os.environ["BENCHMARK_MARKS"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{number} {published!r} {time.time()!r}\n".encode())
    os.close(descriptor)


@app.task(acks_late=True)
def linger() -> None:
    """Leave a mark and take long."""
    tick()
    time.sleep(60)
