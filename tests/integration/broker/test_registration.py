"""Celery finds the transport by entry points, and on the embedded server without an address."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
from celery import Celery
app = Celery(broker="mbus://nobody@nowhere/x", backend="mbus://nobody@nowhere/x")
print(app.connection().transport_cls, app.backend.__class__.__name__)
"""

EMBEDDED = """
import postroad.broker
from celery import Celery
app = Celery(broker="mbus:///", backend="mbus:///")
with app.connection() as connection, connection.SimpleQueue("hello") as queue:
    queue.put({"n": 1})
    message = queue.get(timeout=10)
    message.ack()
    app.backend.store_result("one", message.payload, "SUCCESS")
print(app.AsyncResult("one").get(timeout=10))
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_package_is_enough_for_the_name_to_be_known(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What an installer would write, so that the test sees this tree and not what is installed.
    metadata = tmp_path / "postroad-999.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: postroad\nVersion: 999\n")
    lines = []
    for entry_group in ("celery.result_backends", "kombu.serializers"):
        lines.append(f"[{entry_group}]")
        lines += [
            f"{name} = {value}" for name, value in project["entry-points"][entry_group].items()
        ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src")))
    assert run(PROGRAM, PYTHONPATH=path).split() == ["mbus", "ResultBackend"]


@pytest.mark.slow
def test_no_address_means_the_embedded_server(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    said = run(EMBEDDED, PYTHONPATH=str(ROOT / "src"), POSTROAD_DATA_FOLDER=str(folder))
    assert said.strip() == "{'n': 1}"
    assert not list(folder.rglob("postmaster.pid"))
