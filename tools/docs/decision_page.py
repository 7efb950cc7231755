"""The list of decisions."""

from __future__ import annotations

import re
from pathlib import Path

from tools.docs.markdown import head, table

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"

INTRODUCTION = """
Design decisions that a newcomer would ask about, each with its context and consequences.
"""


def page() -> str:
    """Return the page."""
    rows = []
    for file in sorted(FOLDER.glob("[0-9]*.md")):
        text = file.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        name = re.sub(r"^(ADR )?\d+[.:]?\s*", "", title[1]) if title else file.stem
        rows.append((file.name[:4], f"[{name}]({file.name})"))
    return head("Decisions", INTRODUCTION) + "\n" + table(("number", "decision"), rows)
