"""Finds the fenced blocks of a page and what is said to come out of them.

| fence | run as | expected output |
|---|---|---|
| `sql` | a psql session | the `text` block that follows at once |
| `python` | code; the names of earlier blocks of the page are there, and `dsn` | the same |
| `python title="test_….py"` | a file, run by pytest | none |
| `python title="….py"`, also other languages | a file, for the commands after it | none |
| `console` | commands after `$ ` | the lines after each command |

A `sql` block with a comment `-- raises MB013` must fail with that code. In expected output `...`
stands for anything. Other fences (`sh`, `toml`, `text`) are not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS_RUN = ("tutorials", "howto", "concepts", "operate", "components")
LANGUAGES_RUN = frozenset({"sql", "python", "javascript", "console"})

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<body>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block."""

    language: str
    title: str | None
    body: str
    expected: str | None
    line: int


def pages_run() -> list[Path]:
    """Return the pages whose snippets are run."""
    found = [DOCS / "quickstart.md", DOCS / "index.md"]
    for folder in FOLDERS_RUN:
        pages = sorted((DOCS / folder).glob("*.md"))
        if not pages:
            raise FileNotFoundError(f"no pages in docs/{folder}, whose snippets are run")
        found.extend(pages)
    return found


def snippets(page: Path) -> list[Snippet]:
    """Return the blocks of a page that are run, in order."""
    text = page.read_text(encoding="utf-8")
    return list(_pair(text, list(_FENCE.finditer(text))))


def _pair(text: str, fences: list[re.Match[str]]) -> Iterator[Snippet]:
    for place, fence in enumerate(fences):
        title = re.search(r'title="([^"]+)"', fence["rest"])
        if fence["language"] not in LANGUAGES_RUN and not (title and fence["language"] == "toml"):
            continue
        expected = None
        following = fences[place + 1] if place + 1 < len(fences) else None
        if (
            following is not None
            and following["language"] == "text"
            and not text[fence.end() : following.start()].strip()
        ):
            expected = _dedented(following)
        yield Snippet(
            language=fence["language"],
            title=title[1] if title else None,
            body=_dedented(fence),
            expected=expected,
            line=text.count("\n", 0, fence.start()) + 1,
        )


def _dedented(fence: re.Match[str]) -> str:
    width = len(fence["indent"])
    return "".join(line[width:] for line in fence["body"].splitlines(keepends=True))


def commands(body: str) -> list[tuple[str, str]]:
    """Split a console block into commands and the output shown for each."""
    found: list[tuple[str, str]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found
