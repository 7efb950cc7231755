from __future__ import annotations

from typing import Any

import pytest

from postroad.intake.rules import Rules


def _rules(**given: Any) -> Rules:
    server = {
        "include": ["*"],
        "exclude": [],
        "ignore": ["*.tmp", "*.part"],
        "is_case_sensitive": True,
        "done_suffix": None,
    }
    return Rules({**server, **given})


@pytest.mark.parametrize(
    ("path", "is_wanted"),
    [(b"a.csv", True), (b"a.csv.tmp", False), (b"sub/a.part", False), (b"A.TMP", False)],
)
def test_half_written_files_are_ignored_by_their_ending(path: bytes, is_wanted: bool) -> None:
    assert _rules().is_wanted(path) is is_wanted


def test_case_can_be_ignored() -> None:
    assert not _rules(exclude=["*.bak"], is_case_sensitive=False).is_wanted(b"A.BAK")
    assert _rules(exclude=["*.bak"]).is_wanted(b"A.BAK")


def test_patterns_without_a_slash_are_about_the_name_others_about_the_path() -> None:
    rules = _rules(include=["*.csv", "in/*/x"], exclude=["secret/*"])
    assert rules.is_wanted(b"deep/down/a.csv")
    assert rules.is_wanted(b"in/2026/x")
    assert not rules.is_wanted(b"other/2026/x")
    assert not rules.is_wanted(b"secret/a.csv")


def test_a_done_file_speaks_for_its_file() -> None:
    rules = _rules(done_suffix=".done")
    assert rules.done_for(b"in/a.csv.done") == b"in/a.csv"
    assert rules.done_for(b"in/a.csv") is None


def test_names_that_are_not_utf8_are_matched_all_the_same() -> None:
    assert _rules(include=["caf*"]).is_wanted(b"caf\xe9")
