"""`postroad console`, `serve` and `doctor` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from postroad.cli.main import cli
from postroad.console.errors import LastAdmin


def run(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--database-url", dsn, *arguments])


def test_accounts_are_made_listed_and_removed(database: str) -> None:
    first = json.loads(run(database, "console", "add", "ada", "--role", "admin", "--json").output)
    assert len(first["password"]) == 23
    assert run(database, "console", "add", "Maria", "--role", "operator").exit_code == 0
    listed = json.loads(run(database, "console", "accounts", "--json").output)
    assert {one["name"]: one["role"] for one in listed} == {"ada": "admin", "maria": "operator"}
    assert "removed" in run(database, "console", "drop", "maria").output
    assert "was not there" in run(database, "console", "drop", "maria").output


def test_the_last_admin_stays(database: str) -> None:
    run(database, "console", "add", "ada", "--role", "admin")
    refused = run(database, "console", "drop", "ada")
    assert isinstance(refused.exception, LastAdmin)


def test_a_new_password_is_for_an_account_that_is_there(database: str) -> None:
    missing = run(database, "console", "password", "nobody")
    assert "there is no account nobody" in str(missing.exception)
    run(database, "console", "add", "ada")
    assert json.loads(run(database, "console", "password", "ada", "--json").output)["password"]


def test_services_are_listed(database: str) -> None:
    listed = json.loads(run(database, "serve", "--json").output)
    assert {"maintenance", "web", "alerts"} <= {one["name"] for one in listed}
    assert run(database, "serve", "nonsense").exit_code != 0


def test_the_doctor_looks_at_clock_maintenance_and_keys(database: str, tmp_path: Path) -> None:
    (tmp_path / "vault.key").write_text("no key\n", encoding="ascii")
    (tmp_path / "vault.key").chmod(0o600)
    said = CliRunner().invoke(
        cli, ["--database-url", database, "--data-folder", str(tmp_path), "doctor", "--json"]
    )
    found = {one["what"]: one for one in json.loads(said.output)}
    assert found["clock"]["state"] == "good"
    assert found["maintenance"]["advice"]
    assert found["vault"]["state"] == "bad"
    assert said.exit_code == 1
