"""results.json: what was measured last, scenario by scenario."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.maintenance import Tally
from benchmarks.result import Findings, Scenario

__all__ = ["entry", "read", "write"]

FORMAT = 1


def entry(
    scenario: Scenario,
    findings: Findings,
    maintenance: Tally,
    *,
    date: str,
    commit: str,
    scale: float,
    seconds: float,
    busy_percent: float,
) -> dict[str, Any]:
    """Turn a scenario's findings into what is stored of it."""
    return {
        "title": scenario.title,
        "method": scenario.method,
        "date": date,
        "commit": commit,
        "scale": scale,
        "seconds": round(seconds, 1),
        "busy_percent": round(busy_percent),
        "figures": [{**asdict(each), "is_met": each.is_met} for each in findings.figures],
        "maintenance": asdict(maintenance),
        "raw": _rounded(findings.raw),
    }


def read(file: Path) -> dict[str, Any]:
    """Return what was stored, so that one scenario can be measured again without the others."""
    if not file.is_file():
        return {"format": FORMAT, "machine": {}, "configuration": {}, "scenarios": {}}
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return stored


def write(file: Path, results: dict[str, Any]) -> None:
    """Store the results."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    file.write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Keep four significant digits or so: more is noise, and makes differences unreadable."""
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            return None
        return round(value, 1) if abs(value) >= 1000 else round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
