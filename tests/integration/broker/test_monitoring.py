"""Events and Flower: a monitor that only sees what comes over the broker."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from postroad.testing import wait_until
from tests.integration.broker.crew import CeleryProcess, Hire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def ask(port: int, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_flower_sees_workers_and_tasks(app: Celery, url: str, hire: Hire, tmp_path: Path) -> None:
    port = free_port()
    flower = CeleryProcess(
        url, tmp_path, "flower", f"--port={port}", "--address=127.0.0.1", "--logging=info"
    )
    try:
        hire("--concurrency=1", "--hostname=one@test", "--task-events")
        # Flower hears from now on; a task before that it would not know.
        wait_until(
            lambda: "one@test" in (ask(port, "/api/workers?refresh=1") or {}),
            what="Flower sees the worker",
            timeout_seconds=45,
        )
        result = app.send_task("add", (2, 3))
        assert result.get(timeout=30) == 5
        wait_until(
            lambda: (ask(port, "/api/tasks") or {}).get(result.id, {}).get("state") == "SUCCESS",
            what="Flower sees the task",
        )
    finally:
        flower.stop()
