"""Two servers behind HAProxy or nginx are stopped and started in turn: no request fails.

Clients are those that the documentation supplies: they repeat a call that got no valid answer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroad.exchange.client import Exchange
from postroad.testing import wait_until
from tests.chaos.exchange.pair import haproxy, nginx
from tests.fixtures.exchange_server import ExchangeProcess
from tools.crash_table.world import free_port

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ROUNDS = 20 if os.environ.get("POSTROAD_STRESS") else 2
CLIENTS = 4
DATABASES = ("sales", "stock")


class Load:
    """Senders and ERPs that work until they are told to stop; any error of theirs is a failure."""

    def __init__(self, url: str, tokens: list[str]) -> None:
        self.sent = [0] * CLIENTS
        self.handed_out: dict[str, list[str]] = {database: [] for database in DATABASES}
        self.failures: list[BaseException] = []
        # Of each message and each process, with all repetitions of its calls.
        self.seconds: list[float] = []
        self._is_done = threading.Event()
        clients = [Exchange(url, token) for token in tokens]
        work = [(self._send, (client, number)) for number, client in enumerate(clients[:CLIENTS])]
        work += [(self._take, given) for given in zip(clients[CLIENTS:], DATABASES, strict=True)]
        self._threads = [threading.Thread(target=self._run, args=one) for one in work]

    def _run(self, work: object, given: tuple[object, ...]) -> None:
        try:
            while not self._is_done.is_set():
                begun = time.monotonic()
                work(*given)  # type: ignore[operator]
                self.seconds.append(time.monotonic() - begun)
        except BaseException as failure:  # noqa: BLE001 - told by the test
            self.failures.append(failure)

    def _send(self, client: Exchange, number: int) -> None:
        id_ = f"{number}-{self.sent[number]}"
        client.send(DATABASES[self.sent[number] % 2], {"n": 1}, id=id_)
        self.sent[number] += 1

    def _take(self, client: Exchange, database: str) -> None:
        answer = client.start({"database": database, "attempt": os.urandom(8).hex()})
        assert answer["status"] in ("STARTED", "IDLE"), answer
        if answer["status"] == "STARTED":
            process = answer["process"]
            assert client.prepare(process["id"], {})["status"] == "OK"
            assert client.commit(process["id"])["status"] == "OK"
            self.handed_out[database] += [file["id"] for file in process["files"]]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_done.set()
        for thread in self._threads:
            thread.join()

    def until_progress(self) -> None:
        """Wait until every sender has sent and every ERP has taken."""
        counts = [*self.sent, *map(len, self.handed_out.values())]

        def has_progressed() -> bool:
            now = [*self.sent, *map(len, self.handed_out.values())]
            return bool(self.failures) or all(a > b for a, b in zip(now, counts, strict=True))

        wait_until(has_progressed, what="every client goes on", timeout_seconds=60)


@pytest.mark.timeout(3600 if ROUNDS > 2 else 240)
@pytest.mark.parametrize("balancer", [haproxy, nginx])
def test_a_rolling_restart_fails_no_request(
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    balancer: Callable[[int, Sequence[int], Path], AbstractContextManager[None]],
) -> None:
    servers = [ExchangeProcess(database, tmp_path, {}) for _ in range(2)]
    port = free_port()
    with contextlib.ExitStack() as ends:
        for server in servers:
            server.start()
            ends.callback(server.end)
        ends.enter_context(balancer(port, [one.port for one in servers], tmp_path / "balancer.cfg"))
        names = [
            *(f"phone-{number}" for number in range(CLIENTS)),
            *(f"erp-{one}" for one in DATABASES),
        ]
        load = Load(f"http://127.0.0.1:{port}", [servers[0].token(name) for name in names])
        load.start()
        ends.callback(load.stop)
        for server in servers * ROUNDS:
            load.until_progress()
            port_of_server = server.port
            # SIGTERM; the process must end by itself.
            server.end()
            load.until_progress()
            server.start(port_of_server)
        load.until_progress()
        load.stop()
        with capsys.disabled():
            print(  # noqa: T201 - the figures are asked for
                f"\n{datetime.now(UTC):%Y-%m-%d}, {balancer.__name__}: {2 * ROUNDS} restarts,"
                f" {sum(load.sent)} messages sent, {sum(map(len, load.handed_out.values()))} handed"
                f" out, {len(load.failures)} calls failed, longest message or process"
                f" {max(load.seconds):.1f} s"
            )
        assert load.failures == []
        rows = servers[0].rows("select id, state from exchange.message where kind = 'message'")
        taken = [id_ for ids in load.handed_out.values() for id_ in ids]
        assert len(taken) == len(set(taken))
        assert {id_ for id_, state in rows if state == "done"} == set(taken)
        expected = {
            f"{place}-{number}" for place, count in enumerate(load.sent) for number in range(count)
        }
        assert {id_ for id_, _ in rows} == expected
