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

PAGE = Path(__file__).parents[3] / "docs/operate/exchange-servers.md"


class Pair(World):
    """Clients call the load balancer; one server at a time is killed, and started again."""

    def start(self, **_: object) -> bool:
        self._chance = random.Random(7)
        ports = [free_port(), free_port()]
        self._servers = {port: self._serve(port) for port in ports}
        self._balancer = contextlib.ExitStack()
        self._balancer.enter_context(
            balancing(self.port, ports, self.root.with_name(f"{self.root.name}.haproxy"))
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


@contextlib.contextmanager
def balancing(port: int, servers: Sequence[int], file: Path) -> Iterator[None]:
    """Run HAProxy before two servers, with the configuration of the documentation."""
    (configuration,) = re.findall(r"```haproxy\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for documented, used in zip(("8420", "8421", "8422"), (port, *servers), strict=True):
        configuration = configuration.replace(f"127.0.0.1:{documented}", f"127.0.0.1:{used}")
    file.write_text(configuration)
    process = subprocess.Popen(["haproxy", "-db", "-f", file])
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        file.unlink()


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
