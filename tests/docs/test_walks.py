"""docs/concepts/walks.md names files that exist, at most eight for each walk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = re.split(r"^## ", (ROOT / "docs/concepts/walks.md").read_text("utf-8"), flags=re.M)[1:]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.split("\n", 1)[0])
def test_a_walk_is_short_and_its_files_exist(walk: str) -> None:
    steps = [line for line in walk.splitlines() if re.match(r"\| \d", line)]
    # A file that only another one is generated from is not read.
    files = {
        file
        for step in steps
        for file in re.findall(r"`([a-z_0-9/]+\.(?:py|sql))`(?! is generated)", step)
    }
    assert [file for file in files if not (ROOT / "src/postroad" / file).exists()] == []
    assert 3 <= len(files) <= 8
