"""The dashboard asks for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import postroad.console.metrics

ROOT = Path(__file__).parents[3]


def test_the_dashboard_asks_only_for_metrics_that_are_told() -> None:
    text = (ROOT / "docs/operate/grafana-dashboard.json").read_text(encoding="utf-8")
    told = Path(postroad.console.metrics.__file__).read_text(encoding="utf-8")
    asked = {
        name
        for panel in json.loads(text)["panels"]
        for target in panel["targets"]
        for name in re.findall(r"postroad_\w+", target["expr"])
    }
    assert len(asked) > 10
    assert {name for name in asked if name not in told} == set()
