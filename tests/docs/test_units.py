"""The systemd units of the documentation are valid and hardened."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import DOCS

# On systemd's own scale from 0 (closed) to 10 (open); a unit without any restriction has 9.6.
MAX_EXPOSURE = 2.5

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as files, with the program of this installation, for one service."""
    page = (DOCS / "operate" / "processes.md").read_text(encoding="utf-8")
    blocks = re.findall(r'^```ini title="([^"]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    program = str(Path(sys.executable).parent / "postroad")
    for name, text in blocks:
        text = text.replace("/opt/postroad/bin/postroad", program)
        (tmp_path / name.replace("@.", "@web.")).write_text(text, encoding="utf-8")
    return tmp_path


def test_systemd_accepts_the_units(units: Path) -> None:
    files = [units / "postroad@web.service", units / "postroad.target"]
    assert run("systemd-analyze", "verify", "--man=no", *files) == ""


def test_the_service_is_hardened(units: Path) -> None:
    unit = units / "postroad@web.service"
    run(
        "systemd-analyze",
        "security",
        "--offline=true",
        f"--threshold={MAX_EXPOSURE * 10:.0f}",
        unit,
    )


def test_the_user_can_be_created(units: Path) -> None:
    command = ("systemd-sysusers", "--dry-run", f"--root={units}", units / "postroad.conf")
    assert "Creating user 'postroad'" in run(*command)
