"""Two servers behind HAProxy, as the documentation configures it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from postroad.testing import wait_until
from tools.crash_table.world import PATIENCE_SECONDS, World, free_port

# The session by which others see that a server runs.
LOCK = (
    "select {} from pg_locks l"
    " join exchange.member m on l.objid = m.epoch and m.holder like '%:{}'"
    " join pg_stat_activity a on a.pid = l.pid and a.application_name = 'postroad exchange lock'"
    " where l.locktype = 'advisory' and l.classid::bigint = exchange._lock_class() + 2"
    " and a.datname = current_database()"
)
PAGE = Path(__file__).parents[3] / "docs/operate/exchange-servers.md"


class Pair(World):
    """Clients call the load balancer; one server at a time is killed, and started again."""

    def start(self, **_: object) -> bool:
        self._chance = random.Random(7)
        ports = [free_port(), free_port()]
        self._servers = {port: self._serve(port) for port in ports}
        self._balancer = contextlib.ExitStack()
        self._balancer.enter_context(
            haproxy(self.port, ports, self.root.with_name(f"{self.root.name}.haproxy"))
        )
        return True

    def _serve(self, port: int) -> int:
        pid = self._spawn(port)
        ready = self._ready.is_symlink
        wait_until(ready, what="a server serves", timeout_seconds=PATIENCE_SECONDS)
        return pid

    def kill(self) -> None:
        with self._reviving:
            pid = self._chance.choice([*self._servers.values()])
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not _is_running(pid), what="the server gone")
            self.kills += 1

    def revive(self) -> None:
        with self._reviving:
            for port, pid in self._servers.items():
                if not _is_running(pid):
                    self._servers[port] = self._serve(port)

    def close(self) -> None:
        self._balancer.close()
        for pid in self._servers.values():
            if _is_running(pid):
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda pid=pid: not _is_running(pid), what="the server gone")
        super().close()


class SuspendedPair(Pair):
    """A server is suspended until the other one has removed it; then it continues, and ends."""

    def kill(self) -> None:
        with self._reviving:
            pid = self._chance.choice([*self._servers.values()])
            wait_until(
                lambda: self.rows(LOCK.format("l.pid", pid)) or not _is_running(pid),
                what="a server with its lock",
                timeout_seconds=PATIENCE_SECONDS,
            )
            self.kills += 1
            if not _is_running(pid):
                # It was late on a busy machine, and the other server has removed it.
                return
            os.kill(pid, signal.SIGSTOP)
            cut = self.rows(LOCK.format("pg_terminate_backend(l.pid, 5000)", pid))
            assert cut == [(True,)], cut
            wait_until(
                lambda: not self.rows(f"select 1 from exchange.member where holder like '%:{pid}'"),
                what="the suspended server removed",
                timeout_seconds=PATIENCE_SECONDS,
            )
            os.kill(pid, signal.SIGCONT)
            wait_until(
                lambda: not _is_running(pid),
                what="the removed server gone",
                timeout_seconds=PATIENCE_SECONDS,
            )


@contextlib.contextmanager
def haproxy(port: int, servers: Sequence[int], file: Path) -> Iterator[None]:
    """Run HAProxy before two servers, with the configuration of the documentation."""
    places = "bind :8420", "10.0.0.11:8420", "10.0.0.12:8420"
    file.write_text(_documented("haproxy", places, (port, *servers)))
    try:
        with _running("haproxy", "-db", "-f", str(file)):
            yield
    finally:
        file.unlink()


@contextlib.contextmanager
def nginx(port: int, servers: Sequence[int], file: Path) -> Iterator[None]:
    """Run nginx before two servers, with the configuration of the documentation."""
    places = "listen 8420", "10.0.0.11:8420", "10.0.0.12:8420"
    block = _documented("nginx", places, (port, *servers)).replace("listen ", "listen 127.0.0.1:")
    kinds = "client_body", "proxy", "fastcgi", "uwsgi", "scgi"
    folders = "\n".join(f"{kind}_temp_path {file}.{kind};" for kind in kinds)
    file.write_text(
        f"daemon off; user root; pid {file}.pid; error_log stderr;\n"
        f"events {{}} http {{ access_log off;\n{folders}\n{block}}}"
    )
    with _running("nginx", "-e", "stderr", "-c", str(file)):
        yield


def _documented(program: str, places: Sequence[str], ports: Sequence[int]) -> str:
    """Return a configuration of the documentation with addresses of this machine."""
    (configuration,) = re.findall(rf"```{program}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for place, port in zip(places, ports, strict=True):
        assert place in configuration
        start = {"listen 8420": "listen ", "bind :8420": "bind 127.0.0.1:"}.get(place)
        configuration = configuration.replace(place, f"{start or '127.0.0.1:'}{port}")
    return str(configuration)


@contextlib.contextmanager
def _running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
