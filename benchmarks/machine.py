"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["busy_percent", "commit", "machine", "today"]

SAMPLE_SECONDS = 2


def machine(server_version: str) -> dict[str, str]:
    """Describe processor, memory and software; nothing that names the machine itself."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*:\s*(.+)", information)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": model[1].strip() if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "postgresql": server_version,
    }


def busy_percent() -> float:
    """Tell how busy others keep the machine just now, while nothing is being measured."""
    before = _times()
    time.sleep(SAMPLE_SECONDS)
    total, idle = (after - first for after, first in zip(_times(), before, strict=True))
    return 100 * (1 - idle / total) if total else 0.0


def commit(root: Path) -> str:
    """Return the commit that is measured, marked when files of the product differ from it."""
    head = _git(root, "rev-parse", "--short=10", "HEAD") or "unknown"
    return f"{head}+" if _git(root, "status", "--porcelain", "--", "src") else head


def today() -> str:
    """Return the date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def _times() -> tuple[int, int]:
    """Return the processors' time, all of it and idle, by the kernel's account."""
    line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    ticks = [int(field) for field in line.split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
