"""A server that dies, a client that repeats, an ERP that counts, and what must hold at the end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from postroad.exchange import operations
from postroad.exchange.check import check
from postroad.exchange.files import Storage
from postroad.testing import wait_until

SETTINGS = {
    "file_threads": 1,
    "sweep_interval": "50ms",
    "started_timeout": "60s",
    "ready_timeout": "60s",
}
PATIENCE_SECONDS = 120.0
BASE = "/exchange/v1"


class Nursery:
    """Forks servers from a process that has everything imported."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.crash_table.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def spawn(self, **wish: Any) -> int:
        """Fork a server and return its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it; servers that still run are their owners' to end."""
        self._process.kill()
        self._process.communicate()


class World:
    """One exchange on one database, with everything that happens to it."""

    def __init__(self, dsn: str, nursery: Nursery, **settings: Any) -> None:
        self.dsn = dsn
        self.nursery = nursery
        self.settings = {**SETTINGS, **settings}
        self.root = Path(tempfile.mkdtemp(prefix="crash-"))
        self.port = _free_port()
        self.effects: dict[str, int] = {}
        self.pid: int | None = None
        self.injector: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self._reviving = threading.RLock()
        with psycopg.connect(dsn) as connection:
            self.tokens = {
                name: operations.add_client(connection, name, is_admin=name == "admin").token
                for name in ("phone", "erp", "other", "admin")
            }

    def start(self, *, inject: tuple[str, int] | None = None) -> bool:
        """Start the server; with `inject` it is killed at that call of its start.

        Returns whether it serves; not, if it was killed before.
        """
        ready = self.root / ".ready"
        ready.unlink(missing_ok=True)
        self.pid = self.nursery.spawn(
            dsn=self.dsn,
            root=str(self.root),
            port=self.port,
            settings=self.settings,
            ready=str(ready),
            is_held=inject is not None,
        )
        if inject is not None:
            stat = Path(f"/proc/{self.pid}/stat")
            wait_until(lambda: ") T " in stat.read_text(), what="the server held")
            self.inject(*inject)
            os.kill(self.pid, signal.SIGCONT)
        wait_until(
            lambda: ready.exists() or not self.is_alive(),
            what="the server serves or was killed",
            timeout_seconds=PATIENCE_SECONDS,
        )
        if not self.is_alive():
            self.disarm()
            self.pid = None
            return False
        return True

    def inject(self, call: str, nth: int) -> None:
        """Let the server be killed as it enters the n-th call of this kind."""
        assert self.pid is not None
        self.injector = subprocess.Popen(
            ["strace", "-f", "-p", str(self.pid), "-o", "/dev/null", *_injection(call, nth)],
            stderr=subprocess.PIPE,
        )
        # Until every thread is traced a call could slip by.
        wait_until(self._is_traced, what="strace attached")

    def _is_traced(self) -> bool:
        try:
            tasks = list(Path(f"/proc/{self.pid}/task").iterdir())
            return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)
        except (FileNotFoundError, ProcessLookupError):
            # Killed by the injection already, or a thread that has ended.
            return not self.is_alive()

    def disarm(self) -> bool:
        """End the injection; return whether the server was killed by it."""
        if self.injector is not None:
            # It lets go of a server that lives when asked to.
            if self.is_alive():
                self.injector.terminate()
            else:
                self.injector.kill()
            try:
                self.injector.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self.injector.kill()
                self.injector.communicate()
            self.injector = None
        return not self.is_alive()

    def is_alive(self) -> bool:
        """Whether the server runs."""
        if self.pid is None:
            return False
        try:
            return ") Z " not in Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def revive(self) -> None:
        """Start the server again if it was killed. Critical section: one thread revives."""
        with self._reviving:
            if not self.is_alive():
                self.kills += 1
                self.disarm()
                if not self.start():
                    raise AssertionError("the server does not start after a kill")

    def kill(self) -> None:
        """Kill the server and leave it to those who call it to revive it."""
        with self._reviving:
            if self.pid is not None and self.is_alive():
                os.kill(self.pid, signal.SIGKILL)
                wait_until(lambda: not self.is_alive(), what="the server gone")

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Stop the server."""
        if self.pid is not None and self.is_alive():
            os.kill(self.pid, number)
            wait_until(lambda: not self.is_alive(), what="the server gone")
        self.pid = None

    def close(self) -> None:
        """Remove everything."""
        self.disarm()
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def call(
        self, who: str, method: str, path: str, body: Any = None, *, raw: bytes | None = None
    ) -> tuple[int, Any]:
        """Call until an answer comes, over kills and restarts, as a careful client does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        content = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        while True:
            try:
                status, answer = self._once(who, method, path, content)
            except (OSError, http.client.HTTPException):
                self.revive()
            else:
                if status < 500:
                    return status, answer
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer to {method} {path}")

    def _once(self, who: str, method: str, path: str, content: bytes) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"}
            connection.request(method, BASE + path, content, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def erp_commit(self, process: dict[str, Any]) -> None:
        """The ERP's own transaction: the effect of each message."""
        for file in process["files"]:
            self.effects[file["id"]] = self.effects.get(file["id"], 0) + 1

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Look into the journal."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def wait(self, statement: str, what: str) -> None:
        """Wait for a fact, reviving the server meanwhile."""

        def look() -> bool:
            self.revive()
            return bool(self.rows(statement)[0][0])

        wait_until(look, what=what, timeout_seconds=PATIENCE_SECONDS)

    def violations(self) -> list[str]:
        """Return what does not hold at the end, when nothing is under way any more."""
        self.wait("select not exists (select from exchange.move)", "all moves done")
        found = self.violations_of_folders()
        for id_, count in self.effects.items():
            if count != 1:
                found.append(f"I2 {id_} has {count} effects")
        states = dict(self.rows("select id, state from exchange.message where kind = 'message'"))
        for id_, state in states.items():
            if state == "done" and self.effects.get(id_) != 1:
                found.append(f"I2 {id_} is done without its effect")
            if state not in ("done", "queued"):
                found.append(f"I1 {id_} is {state}")
        open_ = self.rows(
            "select id, state from exchange.process"
            " where state not in ('DONE', 'ABORTED', 'CANCELLED')"
        )
        found += [f"I4 process {id_} is {state}" for id_, state in open_]
        return found

    def violations_of_folders(self) -> list[str]:
        """Return where rows and folders differ."""
        with psycopg.connect(self.dsn) as connection:
            findings = check(connection, Storage(self.root))
        return [f"I1 {one.kind} {one.folder}/{one.name}" for one in findings]

    def tree(self) -> list[str]:
        """Name every file, so that two ends can be compared."""
        return sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )


def _injection(call: str, nth: int) -> list[str]:
    return ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={nth}"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
