"""The extra of the console installs what its web service imports."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_extra_of_the_console_has_every_component_with_pages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found, left = set[str](), ["console"]
    while left:
        found.add(name := left.pop())
        own = [re.match(r"postroad\[(.*)\]", one) for one in extras[name]]
        left += [each for one in own if one for each in one[1].split(",") if each not in found]
    assert found >= {"alerts", "bridge", "coordination", "exchange", "intake", "web"}
