"""Writer, Coordinator and Readers as processes, and databases for them."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psycopg

from postroad.cli.components import SCHEMAS
from postroad.coordination import install_bridges, make_bridges
from postroad.testing import TestServer
from tests.chaos.coordination_part import run_part
from tests.integration.coordination.deployment import prepare
from tests.integration.coordination.lab import ENTITIES, Lab

DEADLINE = timedelta(seconds=3)
# Forked from one that has imported everything: a start takes a moment instead of a second.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.chaos.coordination_part"])


class Crew:
    """The processes, one for each part."""

    def __init__(
        self, dsns: dict[str, str], logs: Path, page: int = 5, deadline: timedelta = DEADLINE
    ) -> None:
        self._dsns, self._logs, self._page, self._deadline = dsns, logs, page, deadline
        self._processes: dict[str, ForkServerProcess] = {}

    def start(self, part: str, die_at: int | None = None) -> None:
        log = str(self._logs / f"{part}.log")
        process = _processes.Process(
            target=run_part,
            args=(part, self._dsns, log, die_at, self._page, self._deadline),
            daemon=True,
        )
        process.start()
        self._processes[part] = process

    def is_alive(self, part: str) -> bool:
        return self._processes[part].is_alive()

    def kill(self, part: str) -> None:
        """Kill a part. Raises AssertionError when it had ended by itself: it never may."""
        alive = self.is_alive(part)
        self.bury(part)
        assert alive, f"the {part} ended by itself: {(self._logs / f'{part}.log').read_text()}"

    def bury(self, part: str) -> None:
        process = self._processes.pop(part)
        process.kill()
        process.join()
        process.close()

    def end(self) -> None:
        for part in list(self._processes):
            self.bury(part)


@contextmanager
def open_databases(
    server: TestServer, *readers: str, policy: str = "compensate"
) -> Iterator[dict[str, str]]:
    """Make the databases of the parts with the sample in them, joined by bridges."""
    names = {
        part: server.create(server.template(*SCHEMAS))
        for part in ("writer", "coordinator", *readers)
    }
    dsns = {part: server.dsn(name) for part, name in names.items()}
    prepare(dsns, readers)
    bridges = make_bridges(
        dsns["writer"], dsns["coordinator"], {name: dsns[name] for name in readers}
    )
    asyncio.run(install_bridges(bridges))
    with psycopg.connect(dsns["writer"], autocommit=True) as session:
        for entity in ENTITIES:
            session.execute(
                f'alter table "{entity}" alter "CorrelationId" set default gen_random_uuid()'
            )
            session.execute(
                "select coordination.track(%s, null, 'replicate', %s)", (f'"{entity}"', policy)
            )
    yield dsns


def connected(dsns: dict[str, str], readers: tuple[str, ...]) -> Lab:
    """Open a session to each database, to look and to write; all of them or none."""
    with ExitStack() as opened:
        sessions = {}
        for part, dsn in dsns.items():
            sessions[part] = psycopg.connect(dsn, autocommit=True)
            opened.callback(sessions[part].close)
        opened.pop_all()
    return Lab(dsns, sessions, readers)
