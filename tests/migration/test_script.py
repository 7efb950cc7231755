from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from postroad.bus.schema import BUS
from postroad.postgres import install, script, status
from postroad.testing import TestServer
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue
from tests.migration.conftest import Component

pytestmark = pytest.mark.both_versions


def run_psql(
    server: TestServer, dsn: str, text: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    file = folder / "install.sql"
    file.write_text(text, encoding="utf-8")
    program = server.embedded.cluster.binaries.program("psql")
    return subprocess.run(
        [program, "-X", "-q", *options, "-f", str(file), dsn],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("which", ["component", "bus"])
def test_the_script_makes_what_the_migrator_makes(
    server: TestServer, component: Component, connect: Connect, tmp_path: Path, which: str
) -> None:
    schema = component.schema if which == "component" else BUS
    with server.clone() as by_psql, server.clone() as by_migrator:
        done = run_psql(server, by_psql, script(schema), tmp_path, "-1")
        assert (done.returncode, done.stderr) == (0, "")
        one, other = connect(by_psql), connect(by_migrator)
        install(other, schema)
        assert catalogue(one, schema.name) == catalogue(other, schema.name)
        templates = f"select name, body from {schema.name}.template order by 1"
        assert one.execute(templates).fetchall() == other.execute(templates).fetchall()
        assert status(one, schema).is_current
        one.rollback()
        assert install(one, schema).is_unchanged
        one.close()
        other.close()


def test_the_script_refuses_to_run_outside_of_one_transaction(
    server: TestServer, empty_database: str, component: Component, connect: Connect, tmp_path: Path
) -> None:
    done = run_psql(server, empty_database, script(component.schema), tmp_path)
    assert done.returncode != 0
    assert "psql -1" in done.stderr
    found = connect(empty_database).execute("select to_regnamespace('sample')").fetchone()
    assert found == (None,)


def test_the_script_refuses_an_installed_schema(
    server: TestServer, empty_database: str, component: Component, tmp_path: Path
) -> None:
    first = run_psql(server, empty_database, script(component.schema), tmp_path, "-1")
    second = run_psql(server, empty_database, script(component.schema), tmp_path, "-1")
    assert first.returncode == 0
    assert second.returncode != 0
    assert "postroad db upgrade" in second.stderr
