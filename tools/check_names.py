"""Refuses long modules, and files that name a package registry's host or a machine's folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = re.compile(
    "|".join(
        (
            r"py" + r"pi\.(?:org|python\.org)",
            r"python" + r"hosted\.org",
            r"registry\.npm" + r"js\.org",
            r"reg" + r"istry\.yarnpkg\.com",
            r"/wo" + r"rk/\w",
            r"/home/\w+/",
            r"/Users/\w+/",
        )
    )
)

MAX_LINES = 600
# Users copy this file into their own code, so it stays in one piece.
LONG = {"src/postroad/exchange/client/standalone.py"}


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    bad = 0
    for name in filter(None, tracked):
        file = ROOT / name
        if not file.is_file() or file.suffix in {".png", ".svg"}:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        is_module = name.startswith("src/") and file.suffix in {".py", ".sql"}
        if is_module and len(lines) > MAX_LINES and name not in LONG:
            print(f"{name}: {len(lines)} lines; split what has more than {MAX_LINES}")
            bad += 1
        for number, line in enumerate(lines, start=1):
            if FORBIDDEN.search(line):
                print(f"{name}:{number}: names a registry's host or a machine's folder")
                bad += 1
        if file.name in {"uv.lock", "poetry.lock", "package-lock.json"}:
            print(f"{name}: lock files name a registry's host; versions are pinned in constraints/")
            bad += 1
    print(f"names: {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
