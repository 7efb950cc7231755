"""The systemd units are valid and hardened, and so are the files beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT
from tests.programs import needed

# On systemd's own scale from 0 (closed) to 10 (open); a unit without any restriction has 9.6.
MAX_EXPOSURE = 2.5
SYSTEMD = ROOT / "packaging" / "systemd"


@pytest.fixture(autouse=True)
def _systemd() -> None:
    needed("systemd-analyze")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as files, with the program of this installation, for one service."""
    program = str(Path(sys.executable).parent / "postroad")
    for file in SYSTEMD.iterdir():
        text = file.read_text(encoding="utf-8").replace("/opt/postroad/bin/postroad", program)
        (tmp_path / file.name.replace("@.", "@web.")).write_text(text, encoding="utf-8")
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
    command = ("systemd-sysusers", "--dry-run", f"--root={units}", units / "sysusers.conf")
    assert "Creating user 'postroad'" in run(*command)


def test_the_folders_can_be_created(units: Path) -> None:
    accounts = units / "etc"
    accounts.mkdir()
    (accounts / "passwd").write_text("root:x:0:0::/:\npostroad:x:990:990::/:\n", encoding="utf-8")
    (accounts / "group").write_text("root:x:0:\npostroad:x:990:\nadm:x:4:\n", encoding="utf-8")
    run("systemd-tmpfiles", "--create", f"--root={units}", units / "tmpfiles.conf")
    assert (units / "etc" / "postroad").stat().st_mode & 0o777 == 0o750
    assert (units / "var" / "log" / "postroad").stat().st_mode & 0o777 == 0o750


def test_logrotate_accepts_its_configuration(tmp_path: Path) -> None:
    # Here the user postroad need not exist.
    text = (ROOT / "packaging" / "logrotate" / "postroad").read_text(encoding="utf-8")
    file = tmp_path / "postroad"
    file.write_text(text.replace("su postroad adm", "su root adm"), encoding="utf-8")
    file.chmod(0o644)
    command = [needed("logrotate"), "-d", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
