"""The workers in other languages under examples/ do what they are written for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from benchmarks.peers.install import installed_node_peer
from postroad.bus import Bus
from postroad.testing import wait_until
from tests.fixtures.holding_proxy import holding_proxy
from tests.programs import needed

pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parents[3]
JDBC = Path("/usr/share/java/postgresql.jar")
GO_PACKAGES = Path("/usr/share/gocode")
# `java` runs a source file only with the compiler of a JDK.
PROGRAMS = {"node": ("node", "npm"), "java": ("java", "javac"), "go": ("go",)}


@pytest.fixture(params=list(PROGRAMS))
def command(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[list[str]]:
    """Return the command of a worker, for the queue `orders` of the database, over TCP."""
    for program in PROGRAMS[request.param]:
        needed(program)
    part = conninfo_to_dict(database)
    socket = f"{part['host']}/.s.PGSQL.{part['port']}"
    with holding_proxy(socket) as proxy:
        address = f"127.0.0.1:{proxy.port}/{part['dbname']}?user={part['user']}"
        if request.param == "node":
            folder = installed_node_peer(ROOT, "pg", "pg@8.23.1")
            environment = [
                f"NODE_PATH={folder}/node_modules",
                f"DATABASE_URL=postgresql://{address}",
            ]
            yield ["env", *environment, "node", str(ROOT / "examples/node/worker.js"), "orders"]
        elif request.param == "go":
            yield [built_with_go(tmp_path), f"postgresql://{address}", "orders"]
        else:
            source = str(ROOT / "examples/java/Worker.java")
            yield ["java", "-cp", str(JDBC), source, f"jdbc:postgresql://{address}", "orders"]


def built_with_go(folder: Path) -> str:
    # Debian's packages of Go libraries are a GOPATH, without modules and without a network.
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": str(GO_PACKAGES),
        "GOCACHE": str(
            Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "go-build"
        ),
    }
    program, source = str(folder / "worker"), str(ROOT / "examples/go/worker.go")
    subprocess.run(["go", "build", "-o", program, source], env=environment, check=True)
    return program


def test_a_worker_handles_retries_and_stops(
    command: list[str], database: str, tmp_path: Path
) -> None:
    told = tmp_path / "told"

    def lines() -> list[str]:
        return told.read_text(encoding="utf-8").splitlines()

    with Bus(database) as bus, told.open("wb") as output:
        bus.create_queue("orders", payload="jsonb")
        bus.post_many("orders", [{"number": 1, "fails": False}, {"number": 2, "fails": True}])
        process = subprocess.Popen(command, stdout=output, stderr=output, env=dict(os.environ))
        try:
            # Java compiles the source first.
            wait_until(lambda: "ready" in lines(), what="the worker ready", timeout_seconds=120)
            wait_until(lambda: bus.maintain() is not None and len(lines()) == 3, what="two orders")
            bus.post("orders", {"number": 3, "fails": False})
            wait_until(lambda: len(lines()) == 4, what="the third order")
            wait_until(lambda: not bus.status("orders")[0].depth, what="all acknowledged")
        finally:
            process.terminate()
            process.wait(60)
    expected = ["order 1, attempt 1", "order 2, attempt 2", "order 3, attempt 1"]
    assert sorted(lines()) == [*expected, "ready"]
