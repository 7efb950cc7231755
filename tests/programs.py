"""Programs of the system that tests run, which `make servers` installs."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

__all__ = ["needed", "refuse_missing"]

# Some programs of servers lie outside an ordinary PATH.
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


def refuse_missing(reason: str) -> NoReturn:
    """Skip on a developer's machine, fail in CI: there a missing program must not go unnoticed."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def needed(program: str) -> str:
    """Return the path of a program, or end the test if it is not installed."""
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_FOLDERS}"
    found = shutil.which(program, path=path)
    return found or refuse_missing(f"no {program}; install it with: make servers")
