from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.keys import object_key
from postroad.testing import DatabaseClock
from postroad.vault import Vault, new_key
from tests.fixtures.sshd import SshServer
from tests.integration.intake.partner import Partner, run_once, sha256

ROOT = Path(__file__).parents[3]
FILES = int(os.environ.get("POSTROAD_TEST_FILES", "20000"))


async def test_folders_are_entered_to_the_depth_that_is_asked_for(
    engine: Engine, partner: Partner
) -> None:
    for name in ("top.csv", "a/one.csv", "a/b/two.csv", "a/b/c/three.csv"):
        partner.write(name, name.encode())
    await run_once(engine, partner)
    assert sorted(partner.statuses) == ["top.csv"]
    partner.change(max_depth=2)
    await run_once(engine, partner)
    assert sorted(partner.statuses) == ["a/b/two.csv", "a/one.csv", "top.csv"]
    assert partner.file("a/b/two.csv")["object_key"] == "127.0.0.1/a/b/two.csv"


async def test_names_of_any_bytes_arrive_under_safe_keys(engine: Engine, partner: Partner) -> None:
    names = [
        b"caf\xe9.csv",
        b"new\nline.csv",
        b"tab\there%.csv",
        b"x" * 255,
        b"..data.csv",
        "\u043e\u0442\u0447\u0451\u0442.csv".encode(),
        b"back\\slash:colon*.csv",
        b" spaces .csv ",
    ]
    partner.change(ignore=[])
    for name in names:
        partner.write(name, name)
    await run_once(engine, partner)
    rows = partner.files
    assert {bytes(row["path"]) for row in rows} == set(names)
    assert {row["status"] for row in rows} == {"completed"}
    for row in rows:
        name = bytes(row["path"])
        assert row["file_hash"] == sha256(name)
        assert row["object_key"] == object_key(partner.server["name"], name, 1)
        assert (engine.store.folder / row["object_key"]).read_bytes() == name  # type: ignore[attr-defined]


async def test_links_are_passed_over_and_told(engine: Engine, partner: Partner) -> None:
    partner.write("a.csv", b"1")
    (partner.folder / "link.csv").symlink_to(partner.folder / "a.csv")
    (partner.folder / "loop").symlink_to(partner.folder)
    partner.change(max_depth=20)
    report = await discover(engine, partner.server_id)
    assert report is not None
    assert report["links_passed_over"] == 2
    assert list(partner.statuses) == ["a.csv"]


async def test_a_loop_of_links_that_are_followed_ends(engine: Engine, partner: Partner) -> None:
    partner.change(follows_links=True, max_depth=50)
    partner.write("sub/a.csv", b"1")
    (partner.folder / "sub" / "up").symlink_to(partner.folder)
    (partner.folder / "self").symlink_to(partner.folder / "self")
    (partner.folder / "nowhere").symlink_to("/does/not/exist")
    (partner.folder / "b.csv").symlink_to(partner.folder / "sub" / "a.csv")
    await run_once(engine, partner)
    assert partner.statuses == {"sub/a.csv": "completed", "b.csv": "completed"}
    problems = partner.server["last_scan"]["problems"]
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "the link nowhere leads nowhere",
        "the link self leads nowhere",
    ]


async def test_a_folder_that_may_not_be_read_is_told_and_does_not_stop_the_others(
    engine: Engine, partner: Partner
) -> None:
    partner.change(max_depth=3)
    partner.write("open/a.csv", b"1")
    partner.write("closed/b.csv", b"2")
    (partner.folder / "closed").chmod(0)
    try:
        await run_once(engine, partner)
    finally:
        (partner.folder / "closed").chmod(0o755)
    assert partner.statuses == {"open/a.csv": "completed"}
    assert partner.server["last_scan"]["problems"] == ["closed may not be read: permission denied"]
    assert partner.server["status"] == "ok"


class Counted:
    """The calls of the journal, by function."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        change = engine.journal.change

        async def counted(function: str, *arguments: object) -> object:
            self.calls[function] += 1
            return await change(function, *arguments)

        monkeypatch.setattr(engine.journal, "change", counted)

    async def scan(self, engine: Engine, partner: Partner) -> tuple[int, int]:
        """Scan; return how many files were discovered, by how many recorded pages."""
        self.calls.clear()
        report = await discover(engine, partner.server_id)
        assert report is not None
        return report["discovered"], self.calls["see"]


def touch(folder: Path, count: int) -> None:
    """Create empty files."""
    for number in range(count):
        os.close(os.open(folder / f"{number:06}.csv", os.O_CREAT | os.O_WRONLY, 0o644))


@pytest.mark.timeout(600)
async def test_files_are_discovered_by_few_statements_and_unchanged_ones_by_none(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(partner.folder, FILES)
    counted = Counted(engine, monkeypatch)
    discovered, pages = await counted.scan(engine, partner)
    assert discovered == FILES
    assert pages <= 10 + 1.5 * FILES / 1000
    assert await counted.scan(engine, partner) == (0, 0)
    assert sum(counted.calls.values()) <= 20, counted.calls
    assert partner.server["last_scan"]["files"] == FILES


async def test_a_new_or_changed_file_costs_only_its_own_page(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(partner.folder, 5000)
    counted = Counted(engine, monkeypatch)
    assert (await counted.scan(engine, partner))[0] == 5000
    for name in ("new.csv", "002500.csv"):
        partner.write(name, b"content")
        discovered, pages = await counted.scan(engine, partner)
        assert discovered == 1
        # Where the new name moves a page's end, pages after it change until their ends agree again.
        assert 1 <= pages <= 4
    (partner.folder / "003500.csv").unlink()
    discovered, pages = await counted.scan(engine, partner)
    assert discovered == 0
    assert 1 <= pages <= 4
    assert await counted.scan(engine, partner) == (0, 0)


async def test_a_page_is_recorded_until_all_of_its_files_are_complete(
    engine: Engine,
    partner: Partner,
    clock_of_intake: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partner.change(looks=2, minimum_age=timedelta(minutes=5))
    for name in ("a.csv", "b.csv"):
        partner.write(name, b"1")
    counted = Counted(engine, monkeypatch)
    for _ in range(3):
        assert await counted.scan(engine, partner) == (0, 1)
    clock_of_intake.advance(timedelta(minutes=6))
    assert await counted.scan(engine, partner) == (2, 1)
    assert await counted.scan(engine, partner) == (0, 0)


async def test_a_page_with_done_files_is_recorded_at_every_scan(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(done_suffix=".done")
    touch(partner.folder, 3000)
    for number in (7, 1500, 2999):
        partner.write(f"{number:06}.csv.done", b"")
    counted = Counted(engine, monkeypatch)
    assert (await counted.scan(engine, partner))[0] == 3
    assert (await counted.scan(engine, partner))[0] == 0
    # Its done-file was there before it, on a page that has not changed since.
    partner.write("001500.csv", b"another version")
    assert (await counted.scan(engine, partner))[0] == 1


def peak_bytes(database: str, key: str, partner: Partner, store: Path) -> int:
    """Scan the folder twice in a process of its own; return its peak memory."""
    given = {
        "dsn": database,
        "key": key,
        "server": partner.server_id,
        "settings": {"store": str(store)},
        "scans": 2,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.intake_run"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["files"] for one in found["scans"]] == [len(list(partner.folder.iterdir()))] * 2
    peak: int = found["peak_bytes"]
    return peak


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_memory_of_a_scan_does_not_grow_with_the_folder(
    database: str, sshd: SshServer, tmp_path: Path
) -> None:
    key = new_key()
    with psycopg.connect(database, autocommit=True) as connection:
        partner = Partner.at(sshd, connection, Vault([key]))
        touch(partner.folder, 5000)
        few = peak_bytes(database, key, partner, tmp_path)
        touch(partner.folder, max(FILES, 50_000))
        many = peak_bytes(database, key, partner, tmp_path)
    assert many < 200_000_000
    assert many - few < 5_000_000
