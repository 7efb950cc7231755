from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from postroad.postgres import EmbeddedServer
from postroad.testing.run_folder import run_folder


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from postroad.cli import run; run()", *arguments]
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(run_folder()), **environment}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=clean, timeout=60, cwd="/"
    )


def test_the_version_is_printed() -> None:
    assert _run("--version").stdout.startswith("postroad 0.")


def test_help_lists_commands_and_exit_codes() -> None:
    said = _run("--help").stdout
    for word in ("db", "config", "doctor", "Exit codes", "is not available"):
        assert word in said


@pytest.mark.both_versions
def test_install_status_upgrade_on_a_named_database(empty_database: str) -> None:
    assert (
        json.loads(_run("--database-url", empty_database, "db", "status", "--json").stdout)[0][
            "is_installed"
        ]
        is False
    )
    planned = _run("--database-url", empty_database, "db", "install", "--dry-run")
    assert "would be installed" in planned.stdout
    done = _run("db", "install", POSTROAD_DATABASE_URL=empty_database)
    assert done.returncode == 0, done.stderr
    assert "mbus: installed" in done.stdout
    again = _run("db", "upgrade", POSTROAD_DATABASE_URL=empty_database)
    assert "nothing to do" in again.stdout
    status = json.loads(_run("--database-url", empty_database, "db", "status", "--json").stdout)
    assert status[0]["is_current"] is True
    with psycopg.connect(empty_database) as connection:
        connection.execute("select * from mbus.status")


def test_upgrading_what_is_not_installed_is_not_found(empty_database: str) -> None:
    done = _run("--database-url", empty_database, "db", "upgrade")
    assert done.returncode == 3
    assert "hint: run: postroad db install" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_are_json_where_a_machine_reads(empty_database: str) -> None:
    done = _run("--database-url", empty_database, "bus", "status", "--json")
    assert (done.returncode, done.stdout) == (5, "")
    error = json.loads(done.stderr)["error"]
    assert "not installed" in error["message"]
    assert "postroad db install" in error["hint"]
    done = _run("bus", "peek", "--json")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["code"] == "usage"


def test_without_a_named_database_it_is_the_embedded_one(tmp_path: Path) -> None:
    folder = run_folder() / f"cli-{tmp_path.name}-{id(tmp_path):x}"
    done = _run("db", "install", POSTROAD_DATA_FOLDER=str(folder))
    assert done.returncode == 0, done.stderr
    server = EmbeddedServer(folder)
    assert not server.is_running
    with server, psycopg.connect(server.dsn()) as connection:
        found = connection.execute("select to_regnamespace('mbus') is not null").fetchone()
        assert found == (True,)
        said = json.loads(_run("doctor", "--json", POSTROAD_DATA_FOLDER=str(folder)).stdout)
        states = {line["what"]: line["state"] for line in said}
        assert states["schema mbus"] == "good"


@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        (("db", "nonsense"), {}, 2),
        (("db", "status"), {"POSTROAD_NONSENSE": "1"}, 2),
        (("--database-url", "nonsense here", "db", "status"), {}, 2),
        (("--database-url", "host=127.0.0.1 port=1", "db", "status"), {}, 5),
        (("--config-file", "/absent.toml", "db", "status"), {}, 2),
    ],
)
def test_mistakes_have_their_exit_codes_and_no_traceback(
    arguments: tuple[str, ...], environment: dict[str, str], code: int
) -> None:
    done = _run(*arguments, **environment)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback() -> None:
    done = _run("--debug", "--database-url", "host=127.0.0.1 port=1", "db", "status")
    assert "Traceback" in done.stderr


def test_config_show_masks_and_names_the_source() -> None:
    url = "postgresql://bob:hunter2@example/db"
    said = _run("config", "show", "--json", POSTROAD_DATABASE_URL=url)
    shown = json.loads(said.stdout)["database_url"]
    assert shown["source"] == "environment"
    assert "hunter2" not in said.stdout


def test_the_script_is_printed_without_a_database() -> None:
    assert "create table mbus.queue" in _run("db", "sql").stdout


def test_doctor_reports_a_restored_bus(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update mbus.node set table_oid = 1")
    findings = json.loads(_run("doctor", "--json", POSTROAD_DATABASE_URL=database).stdout)
    (found,) = [finding for finding in findings if finding["what"] == "bus"]
    assert found["state"] == "bad"
    assert "after_restore" in found["advice"]
