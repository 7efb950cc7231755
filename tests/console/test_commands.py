"""`postroad console`, `serve` and `doctor` on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from click.testing import CliRunner, Result

from postroad.cli.main import cli
from postroad.console.accounts import Accounts
from postroad.console.errors import LastAdmin, LoginRefused
from postroad.postgres.connections import open_async_pool
from postroad.settings import ConsoleSettings

T = TypeVar("T")


def run_with_accounts(dsn: str, do: Callable[[Accounts], Awaitable[T]]) -> T:
    async def run_it() -> T:
        async with await open_async_pool(dsn) as pool:
            return await do(Accounts(pool))

    return asyncio.run(run_it())


def run(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--database-url", dsn, *arguments])


def test_accounts_are_made_listed_and_removed(database: str) -> None:
    first = json.loads(run(database, "console", "add", "ada", "--role", "admin", "--json").output)
    assert len(first["password"]) == 23
    assert run(database, "console", "add", "Maria", "--role", "operator").exit_code == 0
    listed = json.loads(run(database, "console", "accounts", "--json").output)
    assert {one["name"]: one["role"] for one in listed} == {"ada": "admin", "maria": "operator"}
    assert "removed" in run(database, "console", "drop", "maria").output
    assert "does not exist" in run(database, "console", "drop", "maria").output


def test_the_last_admin_stays(database: str) -> None:
    run(database, "console", "add", "ada", "--role", "admin")
    refused = run(database, "console", "drop", "ada")
    assert isinstance(refused.exception, LastAdmin)
    refused = run(database, "console", "add", "ada", "--role", "viewer")
    assert isinstance(refused.exception, LastAdmin)
    # Somebody of a provider does not count: nobody could sign in while it is away.
    with psycopg.connect(database) as connection:
        connection.execute("select console.put_identity('https://id', '1', 'zoe', 'admin')")
    assert isinstance(run(database, "console", "drop", "ada").exception, LastAdmin)
    run(database, "console", "add", "eva", "--role", "admin")
    assert run(database, "console", "drop", "ada").exit_code == 0
    # Whoever is no admin may always go.
    assert run(database, "console", "drop", "zoe").exit_code == 0


def test_the_first_password_is_made_anew_until_somebody_has_used_it(database: str) -> None:
    def first() -> str | None:
        return run_with_accounts(database, lambda accounts: accounts.ensure_first())

    lost, told = first(), first()
    assert lost is not None
    assert told is not None

    async def sign_in(accounts: Accounts, password: str) -> str:
        session = await accounts.sign_in("admin", password, "::1", ConsoleSettings())
        return session.account

    with pytest.raises(LoginRefused):
        run_with_accounts(database, lambda accounts: sign_in(accounts, lost))
    assert run_with_accounts(database, lambda accounts: sign_in(accounts, told)) == "admin"
    assert first() is None


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
    assert "GB free" in found["data folder"]["found"]
    assert "GB free" in found["database's disk"]["found"]
    assert found["maintenance"]["advice"]
    assert found["vault"]["state"] == "bad"
    assert said.exit_code == 1
