"""Power loss: every tree that it may leave can be used, and the checker finds what is planted."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.power import SUBJECTS, check, planted, record_subject, work_folder
from proof.power.checks import Subject
from proof.power.exchange import STEPS, moment, servers, usual_end, violations
from proof.power.model import RULES, Rule, states
from proof.power.trace import ROOT_INODE, Operation, Recording, Tree

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))
pytestmark = [
    pytest.mark.timeout(900 if IS_STRESS else 180),
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
FILE, FOLDER = 1, 2
INTAKE, UPLOAD = (
    next(each for each in STEPS if each.name == name) for name in ("intake", "API_3 upload")
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with work_folder() as folder:
        yield folder


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_what_a_power_loss_leaves_can_be_used(subject: Subject, folder: Path) -> None:
    recording = record_subject(subject, folder)
    for rule in RULES:
        found = check(subject, states(recording, rule), folder)
        assert found.states > 1
        assert found.violations == []


@pytest.mark.parametrize(
    "subject",
    # The states of a cluster without an fsync take a start of the server each.
    [each for each in SUBJECTS if IS_STRESS or each.name != "cluster"],
    ids=lambda subject: subject.name,
)
def test_a_missing_fsync_is_found(subject: Subject, folder: Path) -> None:
    recording = record_subject(subject, folder)
    without = list(planted(recording))
    assert without
    for text, new_states in without:
        assert check(subject, new_states, folder, 1).violations, text


def test_a_message_survives_what_a_power_loss_leaves_of_the_exchange(folder: Path) -> None:
    with (
        servers(folder) as (server, fork_server),
        moment(server, fork_server, INTAKE, ("renameat", 1)) as at,
    ):
        assert at is not None
        found = at.states()
        assert len(found) > 1
        usual: list[str] = []
        for state in found:
            assert violations(server, at, state, usual) == []


def test_a_description_that_was_being_written_is_written_again(folder: Path) -> None:
    with (
        servers(folder) as (server, fork_server),
        # The content of the upload is written in one call, its description by the next.
        moment(server, fork_server, UPLOAD, ("fsync", 2)) as at,
    ):
        assert at is not None
        usual: list[str] = []
        for state in at.states():
            assert violations(server, at, state, usual) == []


def test_a_missing_fsync_of_the_exchange_is_found(folder: Path) -> None:
    with (
        servers(folder) as (server, fork_server),
        moment(server, fork_server, INTAKE) as at,
    ):
        assert at is not None
        # The content of a message that was accepted, and its name.
        usual = usual_end(server, at)
        for text, found in list(at.planted())[-2:]:
            assert any(violations(server, at, state, usual) for state in found), text


def test_a_subject_that_cannot_be_opened_is_a_violation(folder: Path) -> None:
    [vault] = [each for each in SUBJECTS if each.name == "vault"]
    tree = Tree()
    tree.add("share", None)
    tree.add("share/postroad", None)
    tree.add("share/postroad/vault.key", b"")
    [violation] = vault.violations(tree, folder, [])
    assert "the vault has no key" in violation


def recorded(*operations: Operation) -> Recording:
    tree = Tree()
    tree.folders[FOLDER] = {}
    tree.folders[ROOT_INODE]["d"] = FOLDER
    return Recording(tree, operations)


def create(name: str, folder: int = ROOT_INODE, inode: int = FILE) -> Operation:
    return Operation("name", f"create {name}", names=((folder, name, inode),))


def write(data: bytes, offset: int = 0) -> Operation:
    return Operation("write", f"write {data!r}", FILE, offset=offset, data=data)


def sync(inode: int) -> Operation:
    return Operation("sync", "fsync", inode)


def last(recording: Recording, rule: Rule) -> set[tuple[tuple[str, bytes], ...]]:
    """Return the files of all states after a promise at the end."""
    promise = Operation("promise", "promise", data=b"{}")
    ended = dataclasses.replace(recording, operations=(*recording.operations, promise))
    return {
        tuple(sorted((path, data) for path, data in state.tree.paths().items() if data is not None))
        for state in states(ended, rule)
        if state.promises
    }


def test_an_unsynced_write_may_be_absent_zeroed_or_cut() -> None:
    recording = recorded(create("a"), sync(ROOT_INODE), write(b"1234"))
    assert last(recording, "ordered") == {(("a", b""),), (("a", b"1234"),)}
    assert last(recording, "unordered") == {
        (("a", data),) for data in (b"", b"12", b"\0\0\0\0", b"1234")
    }


def test_an_fsync_of_a_file_keeps_its_content_and_not_its_name() -> None:
    recording = recorded(create("a"), write(b"1234"), sync(FILE))
    for rule in RULES:
        assert last(recording, rule) == {(), (("a", b"1234"),)}


def test_an_fsync_of_a_folder_keeps_its_names_and_not_the_content() -> None:
    recording = recorded(create("a"), write(b"1234"), sync(ROOT_INODE))
    assert last(recording, "ordered") == {(("a", b""),), (("a", b"1234"),)}


def test_folders_are_independent_only_where_names_are_not_ordered() -> None:
    recording = recorded(create("a"), create("b", FOLDER, 3))
    both = (("a", b""), ("d/b", b""))
    assert last(recording, "ordered") == {(), both[:1], both}
    assert last(recording, "unordered") == {(), both[:1], both[1:], both}


def test_a_rename_between_folders_is_one_change() -> None:
    rename = Operation("name", "rename", names=((ROOT_INODE, "a", None), (FOLDER, "b", FILE)))
    recording = recorded(create("a"), sync(ROOT_INODE), rename)
    for rule in RULES:
        assert last(recording, rule) == {(("a", b""),), (("d/b", b""),)}
