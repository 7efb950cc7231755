"""What `postmaster.pid` in a data directory says, checked against the processes that exist."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

# Linux gives no process a number above 2^22.
_PID_OF_NOBODY = 2**22 + 1


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A postmaster as its file describes it."""

    pid: int
    port: int
    socket_folder: Path
    is_ready: bool


def read_postmaster(data: Path) -> Postmaster | None:
    """Return the postmaster that runs on a data directory, or None when none does."""
    lines = _lines(data)
    if len(lines) < 5:
        return None
    pid = int(lines[0])
    if not _is_postmaster_of(pid, data):
        return None
    is_ready = len(lines) >= 8 and lines[7].strip() in ("ready", "standby")
    return Postmaster(pid, int(lines[3]), Path(lines[4]), is_ready)


def release_stale_pid(data: Path, socket_folder: Path) -> None:
    """Unblock a start that a reused process number would block.

    PostgreSQL takes any living process of its own user, even one that is dead and not yet reaped,
    for the former postmaster. The number is replaced and the file kept: by it PostgreSQL still
    notices orphaned backends. The folder of the socket is this server's alone, so what is left
    there is a dead one's. Only under the control lock, when no postmaster runs.
    """
    lines = _lines(data)
    if lines and not _is_postmaster_of(int(lines[0]), data) and _exists(int(lines[0])):
        lines[0] = str(_PID_OF_NOBODY)
        (data / "postmaster.pid").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for left_behind in socket_folder.glob(".s.PGSQL.*"):
        left_behind.unlink(missing_ok=True)


def processes_in(data: Path) -> set[int]:
    """Return the PostgreSQL processes whose working folder is the data directory (Linux)."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        if _working_folder(int(entry.name)) == data.resolve():
            found.add(int(entry.name))
    return found


def _lines(data: Path) -> list[str]:
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return lines if lines and lines[0].strip().isdigit() else []


def _is_postmaster_of(pid: int, data: Path) -> bool:
    if not _exists(pid):
        return False
    folder = _working_folder(pid)
    # Where there is no /proc, a living process is believed to be what the file says.
    return folder == data.resolve() if folder is not None else not Path("/proc/self").exists()


def _working_folder(pid: int) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
