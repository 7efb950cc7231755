"""The temporary folder of one test run, shared by its parallel workers and removed at its end."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path

from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.errors import EmbeddedError

_VARIABLE = "POSTROAD_TEST_RUN_FOLDER"
_PREFIX = "postroad-test"
MEMORY_LEAST_BYTES = 6_000_000_000


def _temporary_folder() -> Path:
    """Return the folder of all runs: in memory if there is enough, because disks are shared."""
    memory = Path("/dev/shm")  # noqa: S108 - names in it are made by mkdir, owned by this user
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_LEAST_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def name_run_folder() -> None:
    """Choose the folder's name, in the process that starts the workers; they inherit it."""
    if _VARIABLE not in os.environ:
        name = f"{_PREFIX}-{os.getuid()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        os.environ[_VARIABLE] = str(_temporary_folder() / name)


def run_folder() -> Path:
    """Return the folder, making it when it is first needed."""
    folder = Path(os.environ[_VARIABLE])
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


def close_run_folder() -> None:
    """Remove the folder at the end of the run, in the process that named it."""
    folder = os.environ.pop(_VARIABLE, None)
    if folder is not None:
        _remove(Path(folder))


def sweep_run_folders() -> None:
    """Stop the servers and remove the folders that killed runs of this user have left."""
    pattern = re.compile(rf"{_PREFIX}-{os.getuid()}-(\d+)-[0-9a-f]+")
    for temporary in {_temporary_folder(), Path(tempfile.gettempdir())}:
        for folder in temporary.glob(f"{_PREFIX}-*"):
            found = pattern.fullmatch(folder.name)
            if found and not Path(f"/proc/{found[1]}").exists():
                _remove(folder)


def _remove(folder: Path) -> None:
    for bin_file in folder.glob("*/bin_folder"):
        text = bin_file.read_text(encoding="utf-8")
        try:
            EmbeddedServer(bin_file.parent, bin_folder=Path(text) if text else None).halt()
        except (EmbeddedError, OSError):
            return
    shutil.rmtree(folder, ignore_errors=True)
