"""The file that is copied: the standard library only, and an old Python will do."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postroad.exchange.client import standalone
from tests.fixtures.exchange_server import ExchangeProcess, unique

FILE = Path(standalone.__file__)
PROGRAM = """
import sqlite3, sys
from standalone import Exchange
connection = sqlite3.connect("erp.sqlite")
connection.execute("create table orders (id text)")
connection.commit()
exchange = Exchange(sys.argv[1], sys.argv[2])
with exchange.process(sys.argv[3], connection) as work:
    for file in work.files:
        connection.execute("insert into orders values (?)", (file.id,))
        work.reply(file.sender, {"taken": file.body})
print(work.is_confirmed, connection.execute("select id from orders").fetchall())
"""


def old_python() -> str | None:
    """Find the oldest Python that is promised; a newer one if there is none."""
    named = os.environ.get("POSTROAD_TEST_PYTHON38")
    found = [named, *(shutil.which(f"python3.{minor}") for minor in range(8, 11))]
    found += sorted(str(one) for one in Path.home().glob(".pyenv/versions/3.8*/bin/python"))
    return next((one for one in found if one and _runs(one)), None)


def _runs(program: str) -> bool:
    # A shim may stand for a version that is not there.
    return subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0


def test_it_reads_as_python_3_8() -> None:
    ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_it_imports_the_standard_library_only() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("python", [sys.executable, "old"])
def test_a_copy_of_it_works_alone(served: ExchangeProcess, tmp_path: Path, python: str) -> None:
    interpreter = old_python() if python == "old" else python
    if interpreter is None:
        pytest.skip("no Python between 3.8 and 3.10")
    shutil.copy(FILE, tmp_path / "standalone.py")
    (tmp_path / "program.py").write_text(PROGRAM)
    database = unique("db")
    mobile = served.client(unique("mobile"))
    mobile.send(database, {"ü": 1.5}, id="m1")
    done = subprocess.run(
        [
            interpreter,
            "program.py",
            served.url,
            served.token(unique("erp")),
            database,
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True [('m1',)]\n", done.stderr
    assert [reply.body for reply in mobile.receive()] == [{"taken": {"ü": 1.5}}]
