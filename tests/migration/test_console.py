"""The console's schema: one that was migrated equals a fresh one, and its accounts stay."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from postroad.cli.components import CONSOLE
from postroad.postgres import Schema, install, upgrade
from postroad.testing import TestServer
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue

# The tables and functions that the migrations change, as they were before them.
ACCOUNT = """
create table console.account (
  name          text primary key
                constraint account_name_is_plain check (name ~ '^[a-z0-9_.@+-]{1,200}$'),
  role          text not null
                constraint role_is_known check (role in ('viewer', 'operator', 'admin')),
  password_hash text,
  created_at    timestamptz not null default clock_timestamp(),
  changed_at    timestamptz not null default clock_timestamp()
);
"""
FUNCTIONS = """
create function console.accounts() returns table (name text, role text) language sql stable
set search_path from current as $$ select a.name, a.role from console.account a $$;
"""
SESSIONS = """
create function console.fail_login(p_name text, p_address text) returns void language sql
set search_path from current as $$ select 1 $$;
"""


def test_a_migrated_console_equals_a_fresh_one(
    server: TestServer, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_file(files("postroad.console").joinpath("sql")) as sql:
        folder = tmp_path / "old_console"
        shutil.copytree(sql, folder / "sql")
    (folder / "__init__.py").touch()
    shutil.rmtree(folder / "sql" / "migrations")
    (folder / "sql" / "tables" / "account.sql").write_text(ACCOUNT, encoding="utf-8")
    (folder / "sql" / "functions" / "accounts.sql").write_text(FUNCTIONS, encoding="utf-8")
    (folder / "sql" / "functions" / "sessions.sql").write_text(SESSIONS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with server.clone() as migrated, server.clone() as fresh:
        one, other = connect(migrated), connect(fresh)
        install(one, Schema("console", "old_console"))
        one.execute("insert into console.account (name, role) values ('ada', 'admin')")
        one.commit()
        upgrade(one, CONSOLE)
        install(other, CONSOLE)
        assert catalogue(one, "console") == catalogue(other, "console")
        kept = one.execute("select name, role, issuer, is_unused from console.account").fetchall()
        assert kept == [("ada", "admin", None, False)]
        one.close()
        other.close()
