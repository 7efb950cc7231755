"""Does what a newcomer does, and takes the time: a fresh clone, `make up`, until the map moves.

python -m tools.first_run [COMMIT]

Then counts the processes and their memory (PSS). Everything lies in a temporary folder and is
removed at the end. The network is measured too: packages are fetched unless pip has them in its
cache (`PIP_NO_CACHE_DIR=1` for a run without).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS_MOST = 180.0
PATIENCE_SECONDS = 600.0
MOVING = re.compile(r"^postroad_queue_posted_per_second\{[^}]*\} ([0-9.]+)", re.MULTILINE)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="postroad-first-"))
    folder.chmod(0o755)
    begun = time.monotonic()
    try:
        taken = _first_run(folder, begun)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdict = "met" if taken <= SECONDS_MOST else "missed"
    print(f"a fresh clone to the moving map: {taken:.0f} s; at most {SECONDS_MOST:.0f}: {verdict}")
    sys.exit(taken > SECONDS_MOST)


def _first_run(folder: Path, begun: float) -> float:
    clone = folder / "postroad"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    commit = sys.argv[1] if sys.argv[1:] else "HEAD"
    subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=clone, check=True)
    # Nothing of this one: neither its environment nor its settings.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("POSTROAD_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    process = subprocess.Popen(
        ["make", "up", "ARGS=--port 0"],
        cwd=clone,
        env={**kept, "POSTROAD_DATA_FOLDER": str(folder / "data")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        url = _url(process)
        print(f"{time.monotonic() - begun:5.0f} s  the table of addresses is printed", flush=True)
        while not _moves(url):
            if time.monotonic() - begun > PATIENCE_SECONDS:
                raise SystemExit("nothing moves")
            time.sleep(0.5)
        taken = time.monotonic() - begun
        _print_processes(process.pid)
        return taken
    finally:
        # To all of the group, as Ctrl-C in a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=120)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if found := re.match(r"^metrics\s+(\S+)/metrics", line):
            return found[1]
    raise SystemExit("`make up` ended before everything ran")


def _print_processes(first: int) -> None:
    """Print how many processes `make` has started and their memory, by program."""
    parents = {
        int(status.parent.name): int(status.read_text().split(") ")[-1].split()[1])
        for status in Path("/proc").glob("[0-9]*/stat")
    }
    family = {first}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    memory: dict[str, list[int]] = {}
    for pid in family - {first}:
        shared = Path(f"/proc/{pid}/smaps_rollup").read_text()
        name = Path(f"/proc/{pid}/exe").resolve().name
        memory.setdefault(name, []).append(int(shared.split("\nPss:")[1].split()[0]))
    for name, figures in sorted(memory.items()):
        print(f"{len(figures):5} processes of {name}, {sum(figures) / 1024:.0f} MiB (PSS)")


def _moves(url: str) -> bool:
    """Tell whether the figures of the map are above nothing."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return False
    return any(float(rate) > 0 for rate in MOVING.findall(text))


if __name__ == "__main__":
    main()
