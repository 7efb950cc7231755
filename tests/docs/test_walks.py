"""docs/concepts/walks.md names functions that its files define, at most eight files for a walk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = re.split(r"^## ", (ROOT / "docs/concepts/walks.md").read_text("utf-8"), flags=re.M)[1:]


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _steps(walk: str) -> list[tuple[list[str], list[str]]]:
    """Return the functions and the files of each step."""
    rows = [line.strip("| ").split(" | ") for line in walk.splitlines() if re.match(r"\| \d", line)]
    return [(_quoted(functions), _quoted(files)) for _, functions, files in rows]


def _is_defined(name: str, file: str) -> bool:
    path = ROOT / file if file.startswith("tests/") else ROOT / "src/postroad" / file
    text = path.read_text("utf-8")
    if path.suffix == ".sql":
        created = rf"^create or replace function {re.escape(name)}\("
        return bool(re.search(created, text, re.M | re.I))
    # A method is a function below its class, before the next one.
    owner, _, name = name.rpartition(".")
    if owner:
        found = re.search(rf"^class {owner}\b(.*?)(?=^\S|\Z)", text, re.M | re.S)
        return found is not None and bool(re.search(rf"^    (async )?def {name}\(", found[1], re.M))
    return bool(re.search(rf"^( *(async )?def {name}\(|{name} = )", text, re.M))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.split("\n", 1)[0])
def test_a_walk_is_short_and_its_functions_are_in_its_files(walk: str) -> None:
    steps = _steps(walk)
    missing = [
        (name, file)
        for functions, files in steps
        for name, file in zip(functions, files, strict=True)
        if not _is_defined(name, file)
    ]
    assert missing == []
    assert all(functions for functions, _ in steps)
    assert 3 <= len({file for _, files in steps for file in files}) <= 8


def test_a_function_that_was_moved_is_noticed() -> None:
    assert _is_defined("Intake.take", "exchange/intake.py")
    assert not _is_defined("Intake.post", "exchange/intake.py")
    assert not _is_defined("mbus.post", "bus/sql/functions/redrive.sql")
