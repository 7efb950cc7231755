"""Parses every SQL file of every component with PostgreSQL's own grammar, and reads every manifest.

The server checks bodies of functions in a test. Templates hold placeholders and are not SQL yet.
A manifest reports absent files that `install.sql` names and numbers of migrations taken twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pglast

from postroad.cli.components import SCHEMAS
from postroad.postgres.errors import ManifestBroken
from postroad.postgres.manifest import read_manifest

ROOT = Path(__file__).parents[1]


def _files() -> list[Path]:
    found = [*ROOT.glob("src/postroad/*/sql/**/*.sql"), *ROOT.glob("tests/**/sql/**/*.sql")]
    return sorted(
        file
        for file in found
        if file.name != "install.sql" and file.parent.name not in {"templates", "snapshots"}
    )


def _complaints(text: str) -> list[str]:
    try:
        pglast.parse_sql(text)
    except pglast.parser.ParseError as wrong:
        return [str(wrong)]
    return []


def main() -> int:
    bad = 0
    files = _files()
    for file in files:
        for complaint in _complaints(file.read_text(encoding="utf-8")):
            print(f"{file.relative_to(ROOT)}: {complaint}")
            bad += 1
    for schema in SCHEMAS:
        try:
            read_manifest(schema)
        except ManifestBroken as broken:
            print(f"{schema.name}: {broken.message}")
            bad += 1
    print(f"SQL: {len(files)} files parsed, {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
