"""The Russian pages have the code and the parts of the English ones, whose code is executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import DOCS, ROOT
from tools.crash_table.page import RUSSIAN as RUSSIAN_TEXTS
from tools.crash_table.scenarios import SCENARIOS

RUSSIAN = DOCS / "ru"
PAGES = sorted(RUSSIAN.rglob("*.md"))
_BLOCK = re.compile(r"^( *)```[^\n]*\n.*?^\1```[^\n]*$", re.MULTILINE | re.DOTALL)


def english(page: Path) -> Path:
    name = page.relative_to(RUSSIAN)
    return ROOT / "README.md" if str(name) == "index.md" else DOCS / name


def blocks(page: Path) -> list[str]:
    return [found[0] for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def outline(page: Path) -> list[str]:
    """Return the level of each heading and the width of each row of a table."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    lines = (line for line in text.splitlines() if line.startswith(("#", "|")))
    return [
        line.partition(" ")[0] if line.startswith("#") else f"|{line.count(' | ')}"
        for line in lines
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_both_editions_have_the_same_code_and_the_same_parts(page: Path) -> None:
    assert blocks(page) == blocks(english(page))
    assert outline(page) == outline(english(page))


def test_everything_that_an_operator_needs_is_there() -> None:
    needed = {file.name for file in (DOCS / "operate").glob("*.md")}
    assert {file.name for file in (RUSSIAN / "operate").glob("*.md")} == needed
    assert {"index.md", "quickstart.md"} <= {file.name for file in RUSSIAN.glob("*.md")}
    assert (RUSSIAN / "concepts" / "guarantees.md").is_file()


def test_every_step_of_the_generated_crash_table_has_a_russian_name() -> None:
    assert {scenario.name for scenario in SCENARIOS} == set(RUSSIAN_TEXTS["steps"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_russian_page_is_in_russian(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    russian, latin = (len(re.findall(each, text)) for each in ("[\u0430-\u044f]", "[A-Za-z]"))
    assert russian > 4 * latin
