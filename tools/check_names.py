"""Refuses tracked files that name a package registry's host or a folder of one machine."""

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


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    bad = 0
    for name in filter(None, tracked):
        file = ROOT / name
        if not file.is_file() or file.suffix in {".png", ".svg"}:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
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
