"""Real processes are killed at any moment, and PostgreSQL with them: the Readers follow."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from postroad.testing import TestServer, wait_until
from tests.chaos.coordination_crew import Crew, connected, open_databases
from tests.chaos.test_nothing_is_lost import stop_immediately
from tests.fixtures.postgres import running_server
from tests.integration.coordination.checker import Recorder
from tests.integration.coordination.lab import Lab
from tests.integration.coordination.test_histories import Writers

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))
KILLS = 120 if IS_STRESS else 5
CRASHES = 6 if IS_STRESS else 1


class Watcher:
    """Records what Readers show while everything goes on, and reconnects after a crash."""

    def __init__(self, dsns: dict[str, str], readers: tuple[str, ...]) -> None:
        self._dsns, self._readers = dsns, readers
        self.seen: dict[tuple[str, str], list[frozenset[tuple[str, str]]]] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                recorder = Recorder(connected(self._dsns, self._readers), self.seen)
                try:
                    while not self.stopping.is_set():
                        recorder.look()
                        self.stopping.wait(0.02)
                finally:
                    for session in recorder.lab.sessions.values():
                        session.close()
            except psycopg.OperationalError:
                self.stopping.wait(0.1)


def _write(dsns: dict[str, str], dice: random.Random, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            with psycopg.connect(dsns["writer"], autocommit=True) as probe:
                writers = Writers(Lab(dsns, {"writer": probe}, ()), dice)
                try:
                    while not stopping.is_set():
                        writers.step()
                        stopping.wait(0.01)
                finally:
                    writers.close()
        except psycopg.OperationalError:
            stopping.wait(0.1)


def _situation(lab: Lab, readers: tuple[str, ...]) -> str:
    """Tell where events have stopped."""
    open_events = (
        'select s."Name", count(*), min(e."Position"), max(e."Position"), max(e."Reason")'
        ' from coordination."AppEvent" e'
        ' join coordination."AppEventStatus" s on s."Id" = e."AppEventStatusId"'
        ' where e."FinishedAt" is null group by 1'
    )
    received = (
        'select count(*), min("Position"), max("Position"), min("Id") from'
        ' coordination."WriterEvent" where "FinishedAt" is null'
    )
    heard = "select name, finished_to, now() - heard_at, asked_at from coordination.reader"
    staged = (
        "select count(*), min(position), max(position), count(parked_at), max(attempts),"
        " min(reason), array_agg(distinct outcome), array_agg(distinct vote),"
        " count(*) filter (where staged < count) from coordination.staging"
    )
    progress = "select position, sequence, wait from coordination.progress"
    lines = [f"writer {lab.run('writer', open_events)}"]
    lines += [f"coordinator {lab.run('coordinator', query)}" for query in (received, heard)]
    for reader in readers:
        lines += [f"{reader} {lab.run(reader, query)}" for query in (staged, progress)]
        lines.append(f"{reader} is the same: {lab.rows(reader) == lab.rows('writer')}")
    return "\n".join(lines)


@pytest.fixture
def newest_own_server() -> Iterator[TestServer]:
    with running_server() as server:
        yield server


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(900 if IS_STRESS else 300)
def test_readers_follow_through_kills_of_every_part_and_of_postgres(
    newest_own_server: TestServer, tmp_path: Path
) -> None:
    dice = random.Random(2)
    readers = ("one", "two")
    with open_databases(newest_own_server, *readers) as dsns, ThreadPoolExecutor(2) as threads:
        with psycopg.connect(dsns["two"], autocommit=True) as session:
            session.execute('alter table "DummyItem" add check ("Name" not like \'bad%\')')
        crew, watcher = Crew(dsns, tmp_path), Watcher(dsns, readers)
        parts = ("writer", "coordinator", *readers)
        stopping = threading.Event()
        lab: Lab | None = None
        work = [threads.submit(watcher.run)]
        try:
            for part in parts:
                crew.start(part)
            # A later first snapshot may contain what is cancelled afterwards.
            query = b"select has_snapshot from coordination.progress"
            for reader in readers:
                with psycopg.connect(dsns[reader], autocommit=True) as session:
                    wait_until(
                        lambda session=session: session.execute(query).fetchone() == (True,),
                        what="the first snapshot",
                    )
            work.append(threads.submit(_write, dsns, dice, stopping))
            for number in range(KILLS):
                part = dice.choice(parts)
                # Kills come at any moment of a process's life, its start included.
                time.sleep(dice.uniform(0.2, 1.6))
                crew.kill(part)
                if number % (KILLS // CRASHES) == KILLS // CRASHES - 1:
                    stop_immediately(newest_own_server)
                crew.start(part)
            stopping.set()
            work[1].result()
            with psycopg.connect(dsns["two"], autocommit=True) as session:
                session.execute('alter table "DummyItem" drop constraint "DummyItem_Name_check"')
            lab = connected(dsns, readers)
            began = time.monotonic()
            try:
                wait_until(
                    lambda: (
                        lab.value(
                            "writer",
                            'select not exists (select from coordination."AppEvent"'
                            ' where "FinishedAt" is null)',
                        )
                        and all(lab.rows(reader) == lab.rows("writer") for reader in readers)
                    ),
                    what="an end of all events",
                    timeout_seconds=150 if IS_STRESS else 60,
                )
            except TimeoutError as failure:
                failure.add_note(_situation(lab, readers))
                raise
            rest_seconds = time.monotonic() - began
            watcher.stopping.set()
            work[0].result()
            recorder = Recorder(lab, watcher.seen)
            recorder.look()
            recorder.check()
            events = lab.value("writer", 'select count(*) from coordination."AppEvent"')
            assert events > KILLS
            states = sum(map(len, watcher.seen.values()))
            print(  # noqa: T201 - the figure is asked for
                f"{KILLS} kills, {CRASHES} crashes of PostgreSQL: {events} events,"
                f" {states} states seen, at rest {rest_seconds:.1f} s after the last change"
            )
        finally:
            stopping.set()
            watcher.stopping.set()
            crew.end()
            for session in lab.sessions.values() if lab is not None else ():
                session.close()
