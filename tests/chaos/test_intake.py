"""Everything is killed at random while files come in; at the end each version is there once."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from postroad.cli.components import SCHEMAS
from postroad.intake import Credentials, operations
from postroad.postgres import run_blocking
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until
from postroad.vault import Vault, new_key
from tests.fixtures.postgres import running_server
from tests.fixtures.s3 import S3Server
from tests.fixtures.sshd import SshServer
from tests.integration.intake.crew import Crew

STRESS = bool(os.environ.get("POSTROAD_STRESS"))
FILES = 2000 if STRESS else 50
BYTES_MOST = 50_000_000 if STRESS else 3_000_000
# Each kind of kill at least once, and on until this time has passed.
SECONDS_OF_KILLING = 120.0 if STRESS else 5.0
PAUSES_SECONDS = (0.5, 3.0) if STRESS else (0.3, 1.2)
OPEN = (
    "discovered",
    "downloading",
    "downloaded",
    "uploading_to_minio",
    "uploaded_to_minio",
    "notifying",
)


@pytest.fixture
def server() -> Iterator[TestServer]:
    with running_server() as server:
        yield server


class Partner(threading.Thread):
    """Writes files while the others are killed: whole, growing, replaced, vanishing, forbidden."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.dice = dice
        self.forbidden: set[str] = set()
        self.gone: set[str] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Send everything, in a random order of deeds."""
        try:
            self._send()
        except BaseException as failure:  # noqa: BLE001 - told by the test
            self.failure = failure

    def _size(self) -> int:
        # Most are small, some large, as it is with real partners.
        return max(1, int(BYTES_MOST * self.dice.random() ** (40 if STRESS else 6)))

    def _send(self) -> None:
        growing: list[Path] = []
        for number in range(FILES):
            path = self.folder / f"{number:05}.dat"
            path.write_bytes(self.dice.randbytes(self._size()))
            deed = self.dice.random()
            if deed < 0.05:
                path.chmod(0)
                self.forbidden.add(path.name)
            elif deed < 0.15:
                growing.append(path)
            elif deed < 0.20 and number > 10:
                victim = self.folder / f"{number - 10:05}.dat"
                if victim.name not in self.forbidden:
                    victim.unlink(missing_ok=True)
                    self.gone.add(victim.name)
            elif deed < 0.30 and number > 10:
                replaced = self.folder / f"{number - 5:05}.dat"
                if replaced.exists() and replaced.name not in self.forbidden:
                    beside = self.folder / f".{replaced.name}"
                    beside.write_bytes(self.dice.randbytes(self._size()))
                    beside.replace(replaced)
            for grown in growing[-5:]:
                if grown.exists():
                    with grown.open("ab") as file:
                        file.write(self.dice.randbytes(1000))
            time.sleep(SECONDS_OF_KILLING / FILES / 2)


def _ask(dsn: str, statement: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        return connection.execute(statement.encode()).fetchall()


def _versions(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.iterdir():
        facts = path.stat()
        found[path.name] = (facts.st_size, int(facts.st_mtime))
    return found


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1800 if STRESS else 240)
def test_every_final_version_is_there_once_with_one_notice(
    server: TestServer, sshd: SshServer, s3: S3Server, tmp_path: Path
) -> None:
    dice = random.Random(os.environ.get("POSTROAD_TEST_SEED", "postroad"))
    dsn = server.dsn(server.create(server.template(*SCHEMAS)))
    key = new_key()
    folder = sshd.new_folder()
    run_blocking(
        dsn,
        operations.create_server,
        Vault([key]),
        Credentials(private_key=sshd.key()),
        {
            "host": "127.0.0.1",
            "port": sshd.port,
            "username": sshd.username,
            "directory": str(folder),
            "looks": 2,
        },
    )
    crew = Crew.of(tmp_path / "crew", dsn, key, s3, max_attempts="3", part_bytes="5242880")
    partner = Partner(folder, random.Random(dice.random()))
    try:
        _start(crew)
        partner.start()
        kills = _kill_at_random(dice, crew, server, sshd, s3)
        partner.join()
        assert partner.failure is None, partner.failure
        _start(crew)
        wait_until(
            lambda: _is_settled(dsn, folder, partner),
            what="everything imported",
            timeout_seconds=900 if STRESS else 150,
        )
        _check(dsn, folder, partner, s3, crew)
        assert kills["worker"] > 0
        print("kills:", dict(kills), Counter(row["status"] for row in _files(dsn)))  # noqa: T201
    except BaseException:
        print(crew.logs()[-6000:])  # noqa: T201
        raise
    finally:
        crew.close()


def _start(crew: Crew) -> None:
    for name in ("worker1", "worker2"):
        crew.start(name, "worker", "--concurrency", "2")
    crew.start("beat", "beat")


def _kill_at_random(
    dice: random.Random, crew: Crew, server: TestServer, sshd: SshServer, s3: S3Server
) -> Counter[str]:
    kills: Counter[str] = Counter()
    deeds: list[tuple[str, Callable[[], None]]] = [
        ("worker", lambda: crew.kill(dice.choice(["worker1", "worker2"]))),
        ("worker", lambda: crew.kill(dice.choice(["worker1", "worker2"]))),
        ("beat", lambda: crew.kill("beat")),
        ("sshd", lambda: (sshd.kill(), sshd.start())[-1]),  # type: ignore[func-returns-value]
        ("store", lambda: (s3.kill(), s3.start())[-1]),  # type: ignore[func-returns-value]
        ("postgres", lambda: _kill_postgres(server)),
    ]
    until = time.monotonic() + SECONDS_OF_KILLING
    first = dice.sample(deeds, len(deeds))
    while first or time.monotonic() < until:
        time.sleep(dice.uniform(*PAUSES_SECONDS))
        name, deed = first.pop() if first else dice.choice(deeds)
        deed()
        kills[name] += 1
        _start(crew)
    return kills


def _kill_postgres(server: TestServer) -> None:
    embedded = server.embedded
    postmaster = read_postmaster(embedded.cluster.data)
    assert postmaster is not None
    os.kill(postmaster.pid, signal.SIGKILL)
    wait_until(lambda: not embedded.is_running, what="PostgreSQL down")
    embedded.revive()


def _files(dsn: str) -> list[dict[str, Any]]:
    return _ask(dsn, "select * from intake.imported_files order by id")


def _is_settled(dsn: str, folder: Path, partner: Partner) -> bool:
    try:
        rows = _files(dsn)
    except psycopg.OperationalError:
        # Killed last, and still recovering.
        return False
    if any(row["status"] in OPEN for row in rows):
        return False
    done = {
        (row["filename"], row["filesize"], row["mtime"]): row["status"]
        for row in rows
        if row["status"] in ("completed", "failed")
    }
    for name, (size, mtime) in _versions(folder).items():
        wanted = "failed" if name in partner.forbidden else "completed"
        if done.get((name, size, mtime)) != wanted:
            return False
    return True


def _check(dsn: str, folder: Path, partner: Partner, s3: S3Server, crew: Crew) -> None:
    rows = _files(dsn)
    bucket = crew.environment["POSTROAD_INTAKE__STORE"].removeprefix("s3://")
    completed = {row["id"]: row for row in rows if row["status"] == "completed"}
    keys = [row["object_key"] for row in completed.values()]
    assert len(keys) == len(set(keys))
    client = s3.client()
    for row in completed.values():
        body = client.get_object(Bucket=bucket, Key=row["object_key"])["Body"]
        data = body.read()
        body.close()
        assert hashlib.sha256(data).hexdigest() == row["file_hash"], row["filename"]
        assert len(data) == row["filesize"]
    client.close()
    by_version = {(r["filename"], r["filesize"], r["mtime"]): r for r in completed.values()}
    for name, (size, mtime) in _versions(folder).items():
        if name not in partner.forbidden:
            row = by_version[name, size, mtime]
            there = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            assert row["file_hash"] == there, name
    notices = _ask(dsn, "select data from mbus.consumen_file_events_by_default(1000000)")
    told = Counter(one["data"]["file_id"] for one in notices)
    assert told == Counter(dict.fromkeys(completed, 1))
    assert not [row for row in rows if row["lease_token"] is not None]
