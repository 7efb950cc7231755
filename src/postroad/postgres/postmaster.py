"""The contents of `postmaster.pid` in a data directory, checked against running processes."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

# Process ids of Linux are at most 2^22.
_UNUSED_PID = 2**22 + 1


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
    """Unblock a start that a reused process id would block.

    PostgreSQL takes any process of its own user, even a zombie, for the former postmaster. The id
    is replaced and the file kept: PostgreSQL needs it to detect orphaned backends. Only this server
    uses the socket folder, so a socket that is left there belongs to a dead server. Call it only
    under the control lock, when no postmaster runs.
    """
    lines = _lines(data)
    if lines and not _is_postmaster_of(int(lines[0]), data) and _exists(int(lines[0])):
        lines[0] = str(_UNUSED_PID)
        (data / "postmaster.pid").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for left_behind in socket_folder.glob(".s.PGSQL.*"):
        left_behind.unlink(missing_ok=True)


def processes_in(data: Path) -> set[int]:
    """Return the PostgreSQL processes whose working folder is the data directory (Linux)."""
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return {pid for pid in pids if _working_folder(pid) == data.resolve()}


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
    # Without /proc, a running process is assumed to be the one in the file.
    return folder == data.resolve() if folder is not None else not Path("/proc/self").exists()


def _working_folder(pid: int) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as failure:
        # Permission is denied for the process of another user.
        return isinstance(failure, PermissionError)
    return True
