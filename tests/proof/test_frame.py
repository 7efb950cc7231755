"""The frame of `make proof`: finds parts by name, writes their pages, fails on violations."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import proof.__main__ as frame
from proof.options import Options
from proof.report import Report, Table


def _part(*violations: str) -> Any:
    def run(options: Options) -> Report:
        return Report(
            title="A part",
            introduction="What it shows.",
            facts=(("operations", "7"), ("seed of the run", str(options.seed))),
            tables=(Table("Faults", ("kind", "times"), (("kill | stop", "3"),)),),
            violations=violations,
            limits=("no second machine",),
        )

    return SimpleNamespace(run=run)


def test_the_page_holds_the_facts_and_the_index_links_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frame, "parts", lambda: {"sample": _part()})

    assert frame.main(["--seed", "7", "--output", str(tmp_path)]) == 0

    page = (tmp_path / "sample.md").read_text(encoding="utf-8")
    for line in (
        "| operations | 7 |",
        "| seed of the run | 7 |",
        "| violations | 0 |",
        "| kill \\| stop | 3 |",
        "- no second machine",
        "| command | `make proof ONLY=sample SEED=7` |",
    ):
        assert line in page.splitlines()
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| [A part](sample.md) |" in index


def test_a_violation_fails_the_run_and_is_named_on_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = {"good": _part(), "bad": _part("message 3 was lost")}
    monkeypatch.setattr(frame, "parts", lambda: there)

    assert frame.main(["--only", "good", "--output", str(tmp_path)]) == 0
    assert not (tmp_path / "bad.md").exists()
    assert frame.main(["--output", str(tmp_path)]) == 1
    assert "- message 3 was lost" in (tmp_path / "bad.md").read_text(encoding="utf-8")


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        frame.main(["--only", "none"])
    assert "no part none" in capsys.readouterr().err


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Table("Faults", ("kind", "times"), (("kill",),))
