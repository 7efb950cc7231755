"""The wheel in an empty environment: the bus client needs the driver and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import postroad

ROOT = Path(__file__).parents[3]
TOOLS = Path(sys.executable).parent
CLIENT = """
import sys
from postroad.bus import Bus
with Bus(sys.argv[1]) as bus:
    bus.create_queue("orders")
    bus.post("orders", {"number": "1"})
    print([message.data for message in bus.consume("orders")])
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(TOOLS / "hatchling", "build", "--directory", folder)
    run(TOOLS / "twine", "check", "--strict", *folder.iterdir())
    version = postroad.__version__
    wheel = folder / f"postroad-{version}-py3-none-any.whl"
    assert {file.name for file in folder.iterdir()} == {wheel.name, f"postroad-{version}.tar.gz"}
    return wheel


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = run("git", "ls-files", "src/postroad").split()
    with zipfile.ZipFile(wheel) as packed:
        assert {name.removeprefix("src/") for name in listed} <= set(packed.namelist())


def test_the_client_alone_installs_the_driver_only(
    wheel: Path, tmp_path: Path, database: str
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    python = tmp_path / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "-c", ROOT / "constraints" / "all.txt", wheel)
    installed = {each["name"] for each in json.loads(run(*pip, "list", "--format=json"))}
    assert installed == {"postroad", "psycopg", "psycopg-pool", "typing_extensions"}
    assert run(python, "-I", "-c", CLIENT, database).strip() == "[{'number': '1'}]"
