from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from postroad.postgres.binaries import find_binaries
from postroad.postgres.errors import BinariesNotFound


def test_a_copy_of_the_embedded_programs_runs(tmp_path: Path) -> None:
    copy = find_binaries().copy_to(tmp_path)
    assert copy.folder.is_relative_to(tmp_path)
    for program in ("postgres", "psql"):
        said = subprocess.run([copy.program(program), "--version"], capture_output=True, text=True)
        assert copy.version in said.stdout
    assert find_binaries().copy_to(tmp_path) == copy


def test_a_folder_without_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinariesNotFound, match="initdb"):
        find_binaries(tmp_path)
