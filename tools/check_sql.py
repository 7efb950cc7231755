"""Parses every SQL file of every room with PostgreSQL's own grammar.

Bodies of functions are checked by the server itself, at each install. Templates hold placeholders
and are no SQL yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pglast

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
    print(f"SQL: {len(files)} files parsed, {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
