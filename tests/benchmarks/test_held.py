"""A snapshot that is held for ten minutes, with all kinds of load beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not os.environ.get("POSTROAD_STRESS"), reason="takes eleven minutes")
def test_no_kind_of_load_becomes_slower_under_a_snapshot_of_ten_minutes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "held", "--output", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=False, timeout=1200)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    figures = results["scenarios"]["held"]["figures"]
    assert len(figures) == 16
    assert [figure for figure in figures if figure["is_met"] is False] == []
