"""Runs the first block of a tutorial as a newcomer pastes it: folder, environment, database.

Only the line that installs Postroad is replaced, by this test run's own installation.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from postroad.postgres.binaries import find_binaries
from postroad.testing import TestServer
from tests.docs.snippets import ROOT

OPENING = re.compile(r"^## Begin .*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL = re.compile(r"^pip install '\.\./postroad\[(\w+)\]'.*$", re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
PASSWORD = "of a newcomer"
# What the block sets, or what the commands after it need to find the server.
KEPT = ("PATH", "PG", "POSTROAD_", "PARTNER_", "VIRTUAL_ENV")
# Makes the new environment see the packages of this one, editable installs included.
SEE_PACKAGES = """
import pathlib, sys, sysconfig
file = pathlib.Path(sysconfig.get_path("purelib"), "tested.pth")
file.write_text(f"import site; site.addsitedir({sys.argv[1]!r})\\n")
"""


@dataclass(frozen=True)
class Opening:
    """Where the reader is after the first block."""

    dsn: str
    folder: Path
    variables: dict[str, str]


@contextmanager
def opened(page: Path, server: TestServer, folder: Path) -> Iterator[Opening]:
    """Run the first block of a page as a user who may create databases and nothing else."""
    found = OPENING.search(page.read_text(encoding="utf-8"))
    assert found is not None, "a tutorial begins with the commands that prepare its folder"
    block = found[1]
    [extra] = INSTALL.findall(block)
    assert extra in EXTRAS
    [database] = re.findall(r"^createdb (\w+)$", block, re.MULTILINE)
    install = f"python -c '{SEE_PACKAGES}' '{sysconfig.get_path('purelib')}'"
    script = INSTALL.sub(lambda _: install, block.replace("-m venv", "-m venv --without-pip"))
    part = conninfo_to_dict(server.dsn("postgres"))
    given = {
        **{
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PG", "POSTROAD_"))
        },
        "PATH": f"{Path(sys.executable).parent}:{find_binaries().folder}:{os.environ['PATH']}",
        "PWD": str(folder),
        "PGHOST": str(part["host"]),
        "PGPORT": str(part["port"]),
        "PGUSER": f"reader_of_{database}",
        "PGPASSWORD": PASSWORD,
    }
    with _reader(server, given["PGUSER"], database):
        variables = _variables_after(script, folder, given)
        assert variables["POSTROAD_DATABASE_URL"] == f"postgresql:///{database}"
        yield Opening(
            variables["POSTROAD_DATABASE_URL"],
            Path(variables["PWD"]),
            {name: value for name, value in variables.items() if name.startswith(KEPT)},
        )


def _variables_after(script: str, folder: Path, given: dict[str, str]) -> dict[str, str]:
    file = folder / "variables"
    done = subprocess.run(
        ["sh", "-euc", f"{script}\nenv -0 > '{file}'"],
        cwd=folder,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # Without a terminal nothing can wait for a password.
        start_new_session=True,
    )
    assert done.returncode == 0, done.stdout
    pairs = file.read_text(encoding="utf-8").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


@contextmanager
def _reader(server: TestServer, user: str, database: str) -> Iterator[None]:
    names = {"user": sql.Identifier(user), "database": sql.Identifier(database)}
    removed = (
        sql.SQL("drop database if exists {database} with (force)").format(**names),
        sql.SQL("drop role if exists {user}").format(**names),
    )
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as administrator:
        for statement in removed:
            administrator.execute(statement)
        created = "create role {user} login createdb password {password}"
        administrator.execute(sql.SQL(created).format(password=sql.Literal(PASSWORD), **names))
        yield
        for statement in removed:
            administrator.execute(statement)
