"""Which pages are generated, and by whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from tools.docs import (
    command_page,
    decision_page,
    error_page,
    function_page,
    http_page,
    python_page,
    setting_page,
    table_page,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

GENERATED: dict[str, Callable[[], str]] = {
    "reference/sql-functions.md": function_page.page,
    "reference/sql-tables.md": table_page.page,
    "reference/python.md": python_page.page,
    "reference/settings.md": setting_page.page,
    "reference/cli.md": command_page.page,
    "reference/errors.md": error_page.page,
    "reference/http.md": http_page.page,
    "decisions/index.md": decision_page.page,
}


@cache
def pages() -> dict[Path, str]:
    """Return the text of every generated page by its file."""
    return {
        DOCS / name: write().rstrip().replace(" \n", "\n") + "\n"
        for name, write in GENERATED.items()
    }
