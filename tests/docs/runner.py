"""Runs the snippets of one page against a database, in order, as a reader would."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import psycopg
from sqlalchemy import Engine

from postroad.bus import AsyncWorker, Bus, Worker
from postroad.postgres.binaries import find_binaries
from postroad.testing import wait_until, wait_until_async
from tests.docs.snippets import Snippet, commands

COMMAND_SECONDS = 90
_CHECKER = doctest.OutputChecker()
_LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Pages show one node; each database draws its own.
_NODE = re.compile(r"(?<=\d)@[a-z0-9]{6}\b")
# psql draws its lines as wide as the widest value.
_LINE = re.compile(r"-{3,}")
# What psql prints for a function that returns nothing; pages leave it out.
_VOID = re.compile(r"^ *\w+ *\n-{3,}\n *\n\(1 row\)\n\n?", re.MULTILINE)


class PageRunner:
    """One reader of one page: a database, a folder, the Python names so far."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        more: Mapping[str, str] = {},
        replaced: Mapping[str, str] = {},
    ) -> None:
        self._dsn = dsn
        self._replaced = replaced
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "__main__", "dsn": dsn}
        binaries = find_binaries().folder
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PG")},
            "PATH": f"{Path(sys.executable).parent}:{binaries}:{os.environ['PATH']}",
            "POSTROAD_DATABASE_URL": dsn,
            "PSQLRC": os.devnull,
            "PGTZ": "UTC",
            "COLUMNS": "200",
            "NO_COLOR": "1",
            **more,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What the page left running, because one of its commands has failed.
        for file in self._folder.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text(encoding="ascii")), signal.SIGKILL)
        # What a program of the reader's would close by ending.
        for value in self._names.values():
            if isinstance(value, Engine):
                value.dispose()

    def run(self, snippet: Snippet) -> None:
        """Run one snippet and compare what comes out with what the page shows."""
        for name, here in self._replaced.items():
            shown = snippet.expected and snippet.expected.replace(name, here)
            snippet = replace(snippet, body=snippet.body.replace(name, here), expected=shown)
        if snippet.language == "sql" and not snippet.title:
            self._run_sql(snippet)
        elif snippet.language == "console":
            for command, shown in commands(snippet.body):
                self._compare(shown, self.command(["sh", "-ec", command]), command)
        elif snippet.title and snippet.title.startswith("test_"):
            file = self._folder / snippet.title
            file.write_text(snippet.body, encoding="utf-8")
            # Of the plugins, those take seconds to load that the page has no use for.
            without = [
                f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "schemathesis")
            ]
            self.command([sys.executable, "-m", "pytest", "-q", *without, str(file)])
        elif snippet.title:
            (self._folder / snippet.title).write_text(snippet.body, encoding="utf-8")
        else:
            self._run_python(snippet)

    def _run_sql(self, snippet: Snippet) -> None:
        code = re.search(r"-- raises (MB\d{3})", snippet.body)
        arguments = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"]
        output = self.command([*arguments, self._dsn], snippet.body, must_fail=code is not None)
        if code is not None:
            assert code[1] in output, f"expected {code[1]}, got:\n{output}"
        self._compare(snippet.expected, _VOID.sub("", output), snippet.body)

    def _run_python(self, snippet: Snippet) -> None:
        # Padded, so that a traceback names the line of the page.
        code = compile("\n" * snippet.line + snippet.body, snippet.title or "page", "exec")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, self._names)
        self._compare(snippet.expected, output.getvalue(), snippet.body)

    def command(
        self, command: list[str], given: str | None = None, *, must_fail: bool = False
    ) -> str:
        """Run a command as the reader would and return its output."""
        done = subprocess.run(
            command,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=self._folder,
            env=self._environment,
            timeout=COMMAND_SECONDS,
        )
        assert (done.returncode != 0) == must_fail, f"{command}:\n{done.stdout}"
        return done.stdout

    def _compare(self, shown: str | None, output: str, what: str) -> None:
        if shown is None or not shown.strip():
            return
        wanted, got = (_comparable(text) for text in (shown, output))
        assert _CHECKER.check_output(wanted, got, _LOOSELY), (
            f"the page shows another output for\n{what}\n--- shown\n{wanted}--- is\n{got}"
        )


def _comparable(text: str) -> str:
    return _LINE.sub("---", _NODE.sub("@k3f9q2", text)).strip() + "\n"


def _is_worked_off(bus: Bus) -> bool:
    return all(one.ready + one.leased == 0 for one in bus.status())


def serve_until_worked_off(worker: Worker) -> None:
    """Stand in for `serve`, which runs until a signal: ends when nothing is left to do."""
    with worker, Bus(worker._dsn) as bus:
        wait_until(lambda: _is_worked_off(bus), what="all messages handled")


async def serve_until_worked_off_async(worker: AsyncWorker) -> None:
    """Do the same for the other colour."""
    async with worker:
        with psycopg.connect(worker._dsn, autocommit=True) as connection:
            bus = Bus(connection)

            async def look() -> bool:
                return _is_worked_off(bus)

            await wait_until_async(look, what="all messages handled")
