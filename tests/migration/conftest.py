from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from postroad.postgres import Schema

SAMPLE_COMPONENT = Path(__file__).parent / "sample_component"
NUMBER = iter(range(1_000_000))


class Component:
    """A copy of the sample component that a test may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schema = Schema("sample", folder.name, ("hstore",))

    def write(self, path: str, text: str) -> None:
        file = self.folder / "sql" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def read(self, path: str) -> str:
        return (self.folder / "sql" / path).read_text(encoding="utf-8")

    def remove(self, path: str) -> None:
        (self.folder / "sql" / path).unlink()

    def add_note(self) -> None:
        """Make the next version: a new column, by a migration and in the fresh table."""
        self.write(
            "migrations/0001_expand_add_note.sql",
            "alter table sample.item add column note text not null default '';",
        )
        table = self.read("tables/item.sql").replace(
            "''\n", "'',\n    note text not null default ''\n"
        )
        self.write("tables/item.sql", table)


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Component:
    folder = tmp_path / f"sample_component_{next(NUMBER)}_{tmp_path.name}"
    shutil.copytree(SAMPLE_COMPONENT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    return Component(folder)
