"""Whether tests notice a mutant: they run in a child of a process that has imported them all.

A mutated SQL file is installed into a database of the worker's own, which then is the template that
the fixtures clone. A mutated Python file stands in a tree of links beside the source tree, which
the child and its programs import. The source tree stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from postroad.cli.components import SCHEMAS
from postroad.postgres import bookkeeping
from postroad.postgres.locks import control_lock
from postroad.postgres.manifest import Schema
from postroad.testing import TestServer
from proof.mutations.mutant import Mutant
from proof.options import ROOT

__all__ = ["SOURCE", "Judge", "Verdict"]

SOURCE = ROOT / "src" / "postroad"
TEST_SECONDS = 40
STATEMENT_SECONDS = 20
MUTANT_SECONDS = 400
COVER_SECONDS = 1200
# Not of the mutated behaviour: PostgreSQL or Python cannot run the text.
_INVALID = (
    "errors.SyntaxError", "errors.UndefinedColumn", "errors.UndefinedTable",
    "errors.UndefinedFunction", "errors.AmbiguousColumn", "errors.DatatypeMismatch",
    "errors.GroupingError", "errors.UndefinedParameter", "errors.IndeterminateDatatype",
)  # fmt: skip
_PLUGINS = (
    "--import-mode=importlib", "--disable-plugin-autoload", "-pasyncio", "-phypothesispytest",
    "-ptimeout", "-pno:cacheprovider", "--assert=plain", "-x", "-q", "--no-header", "--tb=short",
    f"--timeout={TEST_SECONDS}", "-o", "addopts=",
)  # fmt: skip

State = Literal["killed", "late", "survived", "invalid", "broken"]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. `late`: tests did not end, which counts as killed."""

    mutant: Mutant
    state: State
    by: str = ""
    seconds: float = 0.0


_CALLED: LiteralString = """
select transaction_timestamp(), array(
  select schemaname || '.' || funcname from pg_stat_xact_user_functions where calls > 0)
"""


@dataclass
class _Recorder:
    """A plugin of pytest: chooses and orders the tests, and keeps what they did."""

    first: dict[str, float]
    failure: str = ""
    text: str = ""
    times: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    called: dict[str, list[str]] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    began: Any = None
    recovers: bool = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        def is_wanted(item: pytest.Item) -> bool:
            call = getattr(item, "callspec", None)
            is_newest = call is None or call.params.get("server_bin_folder") is None
            return is_newest and (not self.first or item.nodeid in self.first)

        items[:] = sorted(
            filter(is_wanted, items), key=lambda item: self.first.get(item.nodeid, 1.0)
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self.began, self.recovers = self._called(item), False
        connection = _connection(item)
        if connection is None:
            return
        self.alone.append(item.nodeid)
        transaction = connection.transaction

        def recovering(*arguments: Any, **named: Any) -> Any:
            self.recovers = True
            return transaction(*arguments, **named)

        vars(connection)["transaction"] = recovering

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        # Functions are counted by transaction: in one of several only those of the last are known.
        # Those that raise are not counted.
        ended = self._called(item)
        if self.began and ended and self.began[0] == ended[0] and not self.recovers:
            self.called[item.nodeid] = ended[1]

    def _called(self, item: pytest.Item) -> tuple[Any, list[str]] | None:
        connection = _connection(item)
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                return connection.cursor(row_factory=tuple_row).execute(_CALLED).fetchone()
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.times[report.nodeid] = self.times.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failures.append(report.nodeid)
            if not self.failure:
                self.failure, self.text = report.nodeid, report.longreprtext


def _connection(item: pytest.Item) -> psycopg.Connection | None:
    """The connection of a test that has no other one."""
    connection = getattr(item, "funcargs", {}).get("connection")
    others = {"connect", "database", "empty_database", "in_thread"} & set(_fixtures(item))
    return connection if isinstance(connection, psycopg.Connection) and not others else None


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", []))


class Judge:
    """Judges mutants, one after the other. Several in processes of their own share a server."""

    def __init__(self, server: TestServer, tests: list[str], scratch: Path) -> None:
        self._server = server
        self._cover_folder = scratch / "covered"
        self._cover_folder.mkdir(parents=True, exist_ok=True)
        self._scratch = scratch / f"judge-{os.getpid()}"
        # The second one is for tests that roll back, and has the sequences that they leave behind.
        self._databases = [server.create(server.template(*SCHEMAS)) for _ in range(2)]
        self._kills: dict[str, Counter[str]] = {}
        self._covered: dict[str, dict[str, Any]] = {}
        # Tests of a single session, which do not depend on the time that they take.
        self._alone: set[str] = set()
        self.broken: set[str] = set()
        os.environ["PGOPTIONS"] = (
            f"-c statement_timeout={STATEMENT_SECONDS}s -c track_functions=all"
        )
        if tests:
            with contextlib.redirect_stdout(io.StringIO()):
                pytest.main([*_PLUGINS, "--collect-only", *tests])

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        for name in self._databases:
            self._server.drop(name)

    def judge(self, mutant: Mutant, tests: tuple[str, ...]) -> Verdict:
        """Run the tests that may call the mutated function, until one fails.

        A test of several sessions must fail twice: on a busy machine it may fail by itself.
        """
        began = time.monotonic()
        while True:
            first = self._choose(mutant, tests)
            state, by = self._judge(mutant, tests, first)
            if state != "killed" or by in self._alone or by not in first:
                break
            if self._judge(mutant, tests, {by: 0.0})[0] == "killed":
                break
            self.broken.add(by)
        if state == "killed":
            self._kills.setdefault(mutant.file, Counter())[by] += 1
        return Verdict(mutant, state, by, time.monotonic() - began)

    def _choose(self, mutant: Mutant, tests: tuple[str, ...]) -> dict[str, float]:
        """Return the tests to run, with their order.

        First those that have noticed other mutants of the file, then those that call the function,
        then those of which that is not known; the quick ones first.
        """
        times: dict[str, float] = {}
        called: dict[str, list[str]] = {}
        for file in tests:
            covered = self._cover(file)
            times |= covered["times"]
            called |= covered["called"]
            self._alone |= set(covered["alone"])
            self.broken |= set(covered["failures"])
        is_known = any(mutant.function in functions for functions in called.values())
        kills = self._kills.get(mutant.file, Counter())
        order = {}
        for test, seconds in times.items():
            calls = mutant.function in called[test] if is_known and test in called else None
            if calls is not False and test not in self.broken:
                order[test] = seconds + (1000 if is_known and calls is None else 0)
                order[test] -= 10000 * kills[test]
        return order

    def _cover(self, file: str) -> dict[str, Any]:
        """Run a file of tests on the product as it is, unless that was done before."""
        if file not in self._covered:
            digest = hashlib.sha256()
            for path in (ROOT / file, *sorted(SOURCE.glob("*/sql/**/*.sql"))):
                digest.update(path.read_bytes())
            kept = self._cover_folder / f"{digest.hexdigest()[:16]}.json"
            with control_lock(kept.with_suffix(".lock"), 1800):
                if not kept.exists():
                    found = self._run((file,), None, {}, stops=False)
                    if found["state"] not in ("survived", "killed"):
                        raise RuntimeError(f"{file}: {found}")
                    kept.write_text(json.dumps(found), encoding="utf-8")
            self._covered[file] = json.loads(kept.read_text(encoding="utf-8"))
        return self._covered[file]

    def _judge(
        self, mutant: Mutant, tests: tuple[str, ...], first: dict[str, float]
    ) -> tuple[State, str]:
        path = SOURCE / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.file.endswith(".py"):
            found = self._run(tests, mutant, first)
        else:
            try:
                self._install(path, mutant.apply(text))
            except psycopg.Error as refused:
                return "invalid", type(refused).__name__
            try:
                found = self._run(tests, mutant, first)
            finally:
                self._install(path, text)
        if found["state"] == "killed" and any(kind in found["text"] for kind in _INVALID):
            return "invalid", found["failure"]
        return found["state"], found["failure"]

    def _install(self, path: Path, text: str) -> None:
        schema = next(one for one in SCHEMAS if one.package.split(".")[1] == _component(path))
        pin = sql.SQL(bookkeeping.PIN_SEARCH_PATH).format(
            schema=sql.Literal(schema.name), extensions=list(schema.extensions)
        )
        store = sql.SQL(bookkeeping.STORE_TEMPLATE).format(
            schema=sql.Identifier(schema.name), name=path.stem, body=text
        )
        for name in self._databases:
            with psycopg.connect(self._server.dsn(name)) as connection:
                connection.execute(pin)
                is_template = path.parent.name == "templates"
                connection.execute(store if is_template else text.encode())

    def _run(
        self,
        tests: tuple[str, ...],
        mutant: Mutant | None,
        first: dict[str, float],
        *,
        stops: bool = True,
    ) -> dict[str, Any]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._run_in_child(tests, mutant, first, writer, stops=stops)
        os.close(writer)
        answer = self._wait(child, reader, MUTANT_SECONDS if stops else COVER_SECONDS)
        os.close(reader)
        self._drop_databases(child)
        return answer

    def _wait(self, child: int, reader: int, seconds: float) -> dict[str, Any]:
        text = b""
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([reader], [], [], left)[0]:
                break
            part = os.read(reader, 65536)
            if not part:
                break
            text += part
        # With the programs that tests have started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not text:
            return {"state": "late", "failure": "", "text": "", "times": {}}
        return dict(json.loads(text))

    def _drop_databases(self, child: int) -> None:
        with psycopg.connect(self._server.dsn("postgres"), autocommit=True) as connection:
            names = connection.execute(
                "select datname from pg_database where starts_with(datname, %s)", (f"t{child:x}_",)
            ).fetchall()
        for (name,) in names:
            self._server.drop(name)

    def _run_in_child(
        self,
        tests: tuple[str, ...],
        mutant: Mutant | None,
        first: dict[str, float],
        writer: int,
        *,
        stops: bool,
    ) -> None:
        os.setsid()
        os.chdir(ROOT)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer: dict[str, Any]
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            if mutant is not None and mutant.file.endswith(".py"):
                self._shadow(mutant)
            elif mutant is not None:
                self._use_template()
            recorder = _Recorder(first)
            words = [word for word in _PLUGINS if stops or word != "-x"]
            # Files whose tests are all left out are not collected.
            code = pytest.main(
                [*words, *(dict.fromkeys(test.partition("::")[0] for test in first) or tests)],
                plugins=[recorder],
            )
            # An interrupted test is one that a mutant ends with KeyboardInterrupt.
            states: dict[int, State] = {0: "survived", 1: "killed", 2: "killed"}
            answer = {
                "state": states.get(int(code), "broken"),
                "failure": recorder.failure or ("" if int(code) == 0 else f"exit {int(code)}"),
                "text": recorder.text[-20000:],
                "times": recorder.times,
                "called": recorder.called,
                "alone": recorder.alone,
                "failures": recorder.failures,
            }
        except BaseException:  # noqa: BLE001 - the child must answer
            answer = {
                "state": "broken",
                "failure": traceback.format_exc(limit=-3),
                "text": "",
                "times": {},
            }
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)

    def _use_template(self) -> None:
        fixtures = importlib.import_module("tests.fixtures.postgres")
        mutated, shared = self._databases
        original = TestServer.template

        def template(server: TestServer, *schemas: Schema) -> str:
            return mutated if schemas == SCHEMAS else original(server, *schemas)

        setattr(TestServer, "template", template)  # noqa: B010 - mypy refuses the assignment
        vars(fixtures)["shared_database"] = lambda _: shared

    def _shadow(self, mutant: Mutant) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        beside, folder = SOURCE, self._scratch / "postroad"
        *folders, name = Path(mutant.file).parts
        for part in (*folders, None):
            folder.mkdir(parents=True)
            for entry in beside.iterdir():
                if entry.name not in (part, name if part is None else None, "__pycache__"):
                    (folder / entry.name).symlink_to(entry)
            if part is not None:
                beside, folder = beside / part, folder / part
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        (folder / name).write_text(mutant.apply(text), encoding="utf-8")
        for module in list(sys.modules):
            if module.partition(".")[0] in ("postroad", "tests"):
                del sys.modules[module]
        sys.path.insert(0, str(self._scratch))
        os.environ["PYTHONPATH"] = str(self._scratch)


def _component(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]
