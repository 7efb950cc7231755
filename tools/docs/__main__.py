"""Writes the generated pages, or checks that they are fresh."""

from __future__ import annotations

import sys

from tools.docs.pages import ROOT, pages


def main(arguments: list[str]) -> int:
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        print("usage: python -m tools.docs [--check]")
        return 2
    stale = [
        path
        for path, text in pages().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if is_check:
            print(f"stale: {path.relative_to(ROOT)}; write it with: make docs")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    if not stale:
        print("generated pages: all fresh")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
