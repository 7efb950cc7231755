"""A Kombu connection, a Celery application and its workers, on a fresh database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from kombu import Connection

import postroad.broker
from tests.integration.broker.crew import CeleryProcess, Hire, url_of
from tests.integration.broker.tasks import make_app

postroad.broker.register()


@pytest.fixture
def url(database: str) -> str:
    return url_of(database)


@pytest.fixture
def broker(url: str) -> Iterator[Connection]:
    with Connection(url) as connection:
        yield connection


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    """A second connection, as another process would have."""
    with Connection(url) as connection:
        yield connection


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    app = make_app(url)
    yield app
    app.backend.close()
    app.close()


@pytest.fixture
def hire(url: str, tmp_path: Path) -> Iterator[Hire]:
    """Start workers, which are killed after the test."""
    hired: list[CeleryProcess] = []

    def start(*options: str, brief: bool = True) -> CeleryProcess:
        # Without what takes a second at the start.
        more = ("--without-mingle", "--without-gossip") if brief else ()
        worker = CeleryProcess(url, tmp_path, "worker", "--loglevel=info", *more, *options)
        hired.append(worker)
        worker.wait_for(" ready.")
        return worker

    yield start
    for worker in hired:
        if worker.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
