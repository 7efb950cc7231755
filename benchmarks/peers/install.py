"""Installs the peers into a folder of their own, so that they never meet Postroad's packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["installed_peers"]

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
PACKAGES = ("procrastinate", "pgqueuer", "asyncpg", "pgmq", "psycopg[binary,pool]", "uvloop")


def installed_peers(root: Path) -> Path:
    """Return the folder with the peers, installing them when they are missing or were repinned."""
    folder = root / ".cache" / "benchmark-peers"
    stamp = folder / "constraints.txt"
    wanted = CONSTRAINTS.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder)
        stamp.write_text(wanted, encoding="utf-8")
    return folder


def _install(folder: Path) -> None:
    target = ["--quiet", "--target", str(folder), "-c", str(CONSTRAINTS), *PACKAGES]
    # The environment may have been made by uv, which puts no pip into it.
    base = getattr(sys, "_base_executable", sys.executable)
    commands = [
        ["uv", "pip", "install", "--python", sys.executable, *target],
        [sys.executable, "-m", "pip", "install", *target],
        [base, "-m", "pip", "install", *target],
    ]
    errors = []
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        errors.append(done.stderr.strip()[-500:])
    raise RuntimeError("the peers could not be installed: " + "; ".join(errors))
