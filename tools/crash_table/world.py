"""A server that dies, a client that repeats, an ERP that counts, and what must hold at the end."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg

from postroad.exchange import operations
from postroad.exchange.check import check
from postroad.exchange.files import TEMPORARY_PREFIX, Storage
from postroad.postgres import run_blocking
from postroad.testing import wait_until

# What changes the disk, what goes to the journal and to clients, and what comes from the journal: a
# kill as an answer is read finds the transaction committed and nobody told.
CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "ftruncate", "fsync", "fdatasync"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
    *("mkdir", "mkdirat", "rmdir", "sendto", "sendmsg", "recvfrom"),
)
SETTINGS = {
    "file_threads": 1,
    "sweep_interval": "1s",
    "started_timeout": "60s",
    "ready_timeout": "60s",
}
PATIENCE_SECONDS = 120.0
BASE = "/exchange/v1"


Thread = Literal["main", "file", "any"]


@dataclass(frozen=True)
class Point:
    """The n-th call of a kind in one of the server's two threads."""

    thread: Thread
    call: str
    nth: int

    def __str__(self) -> str:
        return f"{self.call} {self.nth} of thread {self.thread}"


class ForkServer:
    """Forks servers from a process that has everything imported."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.crash_table.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
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
        self._log.close()

    def said(self) -> str:
        """Return the end of what the servers have written, to tell why one ended."""
        length = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, length - 2000))
        return self._log.read().decode(errors="replace")


class World:
    """One exchange on one database, with everything that happens to it.

    With a companion, a second server runs beside the one that is killed; then it serves alone.
    """

    def __init__(
        self, dsn: str, fork_server: ForkServer, *, has_companion: bool = False, **settings: Any
    ) -> None:
        self.has_companion = self.is_with_others = has_companion
        self._companion: tuple[int, int] | None = None
        self.dsn = dsn
        self.fork_server = fork_server
        self.settings = {**SETTINGS, **settings}
        self.root = Path(tempfile.mkdtemp(prefix="crash-"))
        self._ready = self.root.with_name(f"{self.root.name}.ready")
        self._recorded = self.root.with_name(f"{self.root.name}.calls")
        self.port = free_port()
        self.effects: dict[str, int] = {}
        self.pid: int | None = None
        self.injector: subprocess.Popen[bytes] | None = None
        self.kills = 0
        # Whether a server that was killed is left dead.
        self.is_left = False
        self._reviving = threading.RLock()
        # One connection for each thread that calls; a broken one is opened anew by itself.
        self._lines = threading.local()
        self.tokens = {
            name: run_blocking(
                dsn, operations.add_client, name, is_admin=name == "admin", databases=None
            ).token
            for name in ("phone", "erp", "other", "admin")
        }

    def add_clients(self, stem: str, count: int) -> list[str]:
        """Make clients known and return their tokens."""
        return [
            run_blocking(self.dsn, operations.add_client, f"{stem}-{number}", databases=None).token
            for number in range(count)
        ]

    def start(self, *, inject: Point | None = None, is_recorded: bool = False) -> bool:
        """Start the server; with `inject` it is killed at that point of its start.

        Returns whether it serves; not, if it was killed before.
        """
        is_held = inject is not None or is_recorded
        self.pid = self._spawn(self.port, is_held=is_held)
        if is_held:
            stat = Path(f"/proc/{self.pid}/stat")
            wait_until(lambda: ") T " in stat.read_text(), what="the server held")
            self.record() if inject is None else self.inject(inject)
            os.kill(self.pid, signal.SIGCONT)
        wait_until(
            lambda: self._ready.is_symlink() or not self.is_alive(),
            what="the server serves or was killed",
            timeout_seconds=PATIENCE_SECONDS,
        )
        if not self.is_alive():
            self.disarm()
            self.pid = None
            return False
        if self.has_companion and self._companion is None:
            ready = self._ready.rename(self._ready.with_suffix(".first"))
            port = free_port()
            self._companion = self._spawn(port), port
            wait_until(self._ready.is_symlink, what="the companion serves")
            ready.replace(self._ready)
        return True

    def _spawn(self, port: int, *, is_held: bool = False) -> int:
        self._ready.unlink(missing_ok=True)
        return self.fork_server.spawn(
            dsn=self.dsn,
            root=str(self.root),
            port=port,
            settings=self.settings,
            ready=str(self._ready),
            is_held=is_held,
        )

    def inject(self, point: Point) -> None:
        """Let the server be killed as it enters a call."""
        kill = f"inject={point.call}:signal=SIGKILL:when={point.nth}"
        self._trace(point.thread, point.call, ["-o", "/dev/null", "-e", kill])

    def record(self) -> None:
        """Note the calls that the server makes."""
        self._trace("any", ",".join(CALLS), ["-o", str(self._recorded)])

    def recorded(self) -> Counter[tuple[Thread, str]]:
        """Count what was noted, by thread and kind."""
        file_thread = self._ready.readlink().name
        found: Counter[tuple[Thread, str]] = Counter()
        for line in self._recorded.read_text(encoding="utf-8", errors="replace").splitlines():
            match = re.match(r"(\d+) +(\w+)\(", line)
            if match and match[1] in (str(self.pid), file_thread):
                found["main" if match[1] == str(self.pid) else "file", match[2]] += 1
        return found

    def _trace(self, thread: Thread, calls: str, options: list[str]) -> None:
        """Attach strace. It counts by thread, so only the thread that is meant is traced."""
        assert self.pid is not None
        target = self._ready.readlink().name if thread == "file" else str(self.pid)
        follow = ["-f"] if thread == "any" else []
        self.injector = subprocess.Popen(
            ["strace", *follow, "-p", target, "-e", f"trace={calls}", *options],
            stderr=subprocess.PIPE,
        )
        tasks = Path(f"/proc/{self.pid}/task")
        # Until it is traced a call could slip by.
        wait_until(
            lambda: self._is_traced(list(tasks.iterdir()) if follow else [tasks / target]),
            what="strace attached",
        )

    def _is_traced(self, tasks: list[Path]) -> bool:
        try:
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
        """Whether the server runs, or a thread of it is still inside a call of the disk."""
        if self.pid is None:
            return False
        try:
            is_ended = ") Z " in Path(f"/proc/{self.pid}/stat").read_text()
            return not is_ended or len(list(Path(f"/proc/{self.pid}/task").iterdir())) > 1
        except (FileNotFoundError, ProcessLookupError):
            return False

    def revive(self) -> None:
        """Start the server again if it was killed. Critical section: one thread revives."""
        with self._reviving:
            if not self.is_alive():
                self.kills += 1
                self.disarm()
                if self._companion is not None:
                    self.pid, self.port = self._companion
                    self._companion = None
                    self.has_companion = False
                elif not self.start():
                    said = self.fork_server.said()
                    raise AssertionError(f"the server does not start after a kill: {said}")

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
        if self._companion is not None:
            self.pid, self._companion = self._companion[0], None
            self.stop(number)

    def close(self) -> None:
        """Remove everything."""
        self.hang_up()
        self.disarm()
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        for file in (self._ready, self._recorded):
            file.unlink(missing_ok=True)

    def call(
        self, who: str, method: str, path: str, body: Any = None, *, raw: bytes | None = None
    ) -> tuple[int, Any]:
        """Call until an answer comes, over kills and restarts, as a careful client does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        content = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        while True:
            try:
                status, answer = self._once(who, method, path, content)
            except (OSError, http.client.HTTPException) as failure:
                if self.is_left:
                    wait_until(lambda: not self.is_alive(), what="the server gone")
                    raise ConnectionError("the server was killed") from failure
                self.revive()
            else:
                if status < 500:
                    return status, answer
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer to {method} {path}")

    def _once(self, who: str, method: str, path: str, content: bytes) -> tuple[int, Any]:
        line: http.client.HTTPConnection | None = getattr(self._lines, "line", None)
        if line is None:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            self._lines.line = line
        try:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"}
            line.request(method, BASE + path, content, headers)
            answer = line.getresponse()
            text = answer.read()
            # A load balancer answers in its own words while no server does.
            return answer.status, json.loads(text) if answer.status < 500 else None
        except BaseException:
            line.close()
            self._lines.line = None
            raise

    def hang_up(self) -> None:
        """Close the connection of the thread that calls this."""
        line: http.client.HTTPConnection | None = getattr(self._lines, "line", None)
        if line is not None:
            line.close()

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

    def settle(self) -> None:
        """Wait until every file is where it belongs and the journal knows."""
        self.wait("select not exists (select from exchange.move)", "all moves done")

    def violations(self) -> list[str]:
        """Return what does not hold at the end, when nothing is under way any more."""
        self.settle()
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
        # Temporary files of a server that was killed are removed when its silence has lasted.
        ignored = "temporary" if self.kills and self.is_with_others else ""
        return [f"I1 {one.kind} {one.folder}/{one.name}" for one in findings if one.kind != ignored]

    def final(self) -> list[str]:
        """Name every file and every message's state, so that two ends can be compared."""
        files = sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file()
            and not path.relative_to(self.root).parts[0].startswith(".")
            and not path.name.startswith(TEMPORARY_PREFIX)
        )
        rows = self.rows("select kind, id, state, folder from exchange.message order by kind, id")
        return [*files, *(" ".join(map(str, row)) for row in rows)]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
