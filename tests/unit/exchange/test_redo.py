"""The redo: what is done is found done, what is left is finished, a stale plan changes nothing."""

from __future__ import annotations

import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroad.exchange.errors import FileMissing, FileUnsafe, StorageFailed
from postroad.exchange.files import Storage
from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move, redo


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = Storage(tmp_path)
    storage.make_database("sales")
    return storage


def _move(folder: str | None, **more: object) -> Move:
    return Move(number=1, database="sales", name="a.json", folder=folder, **more)  # type: ignore[arg-type]


def test_a_move_may_be_done_any_number_of_times(storage: Storage) -> None:
    storage.write("sales", "Messages", ".new-1", b"x")
    for _ in range(3):
        assert redo(storage, "sales", [_move("Messages", temporary=".new-1")]) == [None]
    for _ in range(3):
        assert redo(storage, "sales", [_move("Log", source="Messages")]) == [None]
    assert list(storage.names("sales", "Log")) == ["a.json"]
    for _ in range(2):
        assert redo(storage, "sales", [_move(None, source="Log")]) == [None]
    assert list(storage.names("sales", "Log")) == []


def test_a_file_is_found_wherever_it_lies(storage: Storage) -> None:
    storage.write("sales", "Unknown", "a.json", b"x")
    assert redo(storage, "sales", [_move("Log", source="Messages")]) == [None]


def test_a_lost_file_is_told(storage: Storage) -> None:
    (outcome,) = redo(storage, "sales", [_move("Log", source="Messages")])
    assert isinstance(outcome, FileMissing)


async def test_an_older_plan_is_not_followed_after_a_newer_one(storage: Storage) -> None:
    storage.write("sales", "Prepared", "a.json", b"x")
    with ThreadPoolExecutor(1) as threads:
        mover = Mover(ExchangeJournal(""), storage, threads, creates_databases=True)
        assert await mover.outcomes([_move("Messages", source="Prepared", version=7)]) == [None]
        assert await mover.outcomes([_move("Prepared", source="Messages", version=3)]) == [None]
    assert list(storage.names("sales", "Messages")) == ["a.json"]


def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder lies on a file system of its own."""
    real = os.rename

    def rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if src_dir_fd != dst_dir_fd:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr("postroad.exchange.files.os.rename", rename)


def test_between_file_systems_a_move_is_a_copy(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _apart(monkeypatch)
    content = b"x" * 3_000_000
    storage.write("sales", "Messages", "a.json", content)
    for _ in range(2):
        assert redo(storage, "sales", [_move("Log", source="Messages")]) == [None]
    assert storage.load("sales", "Log", "a.json", len(content)) == (len(content), content)
    assert list(storage.names("sales", "Messages")) == []
    assert list(storage.names("sales", "Log")) == ["a.json"]


def test_a_copy_that_died_before_its_source_was_removed_is_finished(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _apart(monkeypatch)
    digest = hashlib.sha256(b"x").hexdigest()
    for folder in ("Messages", "Log"):
        storage.write("sales", folder, "a.json", b"x")
    move = _move("Log", source="Messages", size=1, sha256=digest)
    assert redo(storage, "sales", [move]) == [None]
    assert list(storage.names("sales", "Messages")) == []
    assert list(storage.names("sales", "Log")) == ["a.json"]
    assert list(storage.names("sales", "Error")) == []


def test_what_lies_under_the_name_already_is_put_aside(storage: Storage) -> None:
    storage.write("sales", "Messages", "a.json", b"mine")
    storage.write("sales", "Log", "a.json", b"another's")
    assert redo(storage, "sales", [_move("Log", source="Messages")]) == [None]
    assert storage.load("sales", "Log", "a.json", 4) == (4, b"mine")
    (aside,) = storage.names("sales", "Error")
    assert storage.load("sales", "Error", aside, 9) == (9, b"another's")


def test_links_are_not_followed(storage: Storage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "evil").symlink_to(outside)
    with pytest.raises(StorageFailed):
        storage.write("evil", "Messages", "x", b"x")
    (tmp_path / "sales/Messages/link.json").symlink_to("/etc/passwd")
    with pytest.raises(FileUnsafe):
        storage.load("sales", "Messages", "link.json", 10)
    os.mkfifo(tmp_path / "sales/Messages/pipe.json")
    with pytest.raises(FileUnsafe):
        storage.load("sales", "Messages", "pipe.json", 10)


def test_a_processed_file_that_was_moved_elsewhere_is_removed_too(storage: Storage) -> None:
    storage.write("sales", "Messages", "a.json", b"x")
    storage.write("sales", "Log", "b.json", b"x")
    assert redo(storage, "sales", [_move(None, source="Log", state="done")]) == [None]
    assert [*storage.names("sales", "Messages"), *storage.names("sales", "Log")] == ["b.json"]
