"""Runs clients against a cluster and plays faults; ends only what it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from random import Random

from proof.cluster import POSTGRES, RABBIT, Cluster
from proof.cluster.processes import wait_for
from proof.faults.kinds import KINDS
from proof.faults.proxy import CuttingProxy
from proof.faults.schedule import Entry
from proof.faults.workload import Orders
from proof.history.record import Recorder
from proof.options import ROOT

__all__ = ["Driver"]

# Name of each client: its role, its route, and whether its clock may jump. Those whose clock does
# wait for events and sockets only: the library that makes it jump breaks `time.sleep`.
CLIENTS = {
    "poster-direct": ("poster", "direct", False),
    "poster-proxy": ("poster", "proxy", False),
    "poster-pooled": ("poster", "pooled", False),
    "worker-direct": ("worker", "direct", False),
    "worker-proxy": ("worker", "proxy", False),
    "worker-pooled": ("worker", "pooled", True),
    "leaser-direct": ("leaser", "direct", True),
    "leaser-proxy": ("leaser", "proxy", False),
    # Session locks of bridges need direct connections.
    "carrier": ("carrier", "direct", False),
}
# Those of this checkout, whichever one the environment was installed from.
SOURCES = os.pathsep.join((str(ROOT), str(ROOT / "src")))
RECOVERY_SECONDS = 180.0
# A standby that does not follow after this time is copied again, and a node of RabbitMQ that does
# not come back is started again, as an operator would.
PATIENCE_SECONDS = 45.0
# What Patroni writes when another node is promoted; one that leads again itself loses nothing.
PROMOTED = "promoted self to leader by acquiring session lock"


class Driver:
    """The clients of one run, and the faults done to it."""

    def __init__(
        self, cluster: Cluster, folder: Path, proxy: CuttingProxy, seed: int, rate: float
    ) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.folder = folder
        self.clock = folder / "clock"
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.recorder = Recorder(folder / "history", "driver")
        self.played: list[Entry] = []
        self.problems: list[str] = []
        # Standbys that did not come back by themselves.
        self.copied = 0
        # Nodes of RabbitMQ that did not.
        self.restarted = 0
        # Ends of clients that no fault caused.
        self.ended: list[str] = []
        self._seed = seed
        self._rate = rate
        self._starts = 0
        self._lock = threading.Lock()
        self._primary = POSTGRES[0]
        self.clock.write_text("+0\n", encoding="utf-8")

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, folder: Path, seed: int, rate: float) -> Iterator[Driver]:
        """Run proxy and driver; end the clients that are left."""
        network = cluster.plan.network
        with CuttingProxy(network.host_address, (network.address("front"), 5000)) as proxy:
            driver = cls(cluster, folder, proxy, seed, rate)
            try:
                yield driver
            finally:
                for process in driver.clients.values():
                    process.kill()
                    process.wait()
                driver.recorder.close()

    # Clients.

    def start_clients(self) -> None:
        """Start every client."""
        for name in CLIENTS:
            self.start_client(name)

    def start_client(self, name: str) -> None:
        """Start a client, or start it again."""
        role, route, jumps = CLIENTS[name]
        with self._lock:
            self._starts += 1
            orders = Orders(
                dsn=self.dsn(route),
                folder=str(self.folder / "history"),
                seed=self._seed * 10_000 + self._starts,
                rate=self._rate / 6,
                is_pooled=route == "pooled",
                brokers=self.brokers(),
            )
            base = time.time() - time.monotonic()
            environment = {**os.environ, "PROOF_CLOCK_BASE": repr(base), "PYTHONPATH": SOURCES}
            libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
            if jumps and libraries:
                environment |= {
                    "LD_PRELOAD": str(libraries[0]),
                    "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                    "FAKETIME_CACHE_DURATION": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                }
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "proof.faults.clients", role, name],
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                )
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(orders)).encode())
            process.stdin.close()
            self.clients[name] = process

    def dsn(self, route: str) -> str:
        """Return how clients of a route connect; `proxy` is ours, in front of HAProxy."""
        if route != "proxy":
            return self.cluster.dsn(route)
        network = self.cluster.plan.network
        dsn = self.cluster.dsn("haproxy")
        dsn = dsn.replace(f"host={network.address('front')}", f"host={network.host_address}")
        return dsn.replace("port=5000", f"port={self.proxy.port}")

    def brokers(self) -> str:
        """Return the addresses of RabbitMQ's nodes, as a bridge has them."""
        plan = self.cluster.plan
        return ";".join(
            f"amqp://postroad:{plan.password}@{plan.network.address(node)}:5672/" for node in RABBIT
        )

    def check_clients(self) -> None:
        """Start again clients that ended without a fault, and note that."""
        self.check_clients_of(("poster", "worker", "leaser", "carrier"))

    def check_clients_of(self, roles: tuple[str, ...]) -> None:
        """Do the same for the clients of these roles."""
        for name, process in list(self.clients.items()):
            if CLIENTS[name][0] not in roles:
                continue
            if process.poll() is not None and process.returncode != -9:
                self.ended.append(f"{name} ended with {process.returncode}")
                self.start_client(name)

    def stop_clients(self, role: str, timeout_seconds: float) -> None:
        """Ask the clients of a role to finish, and wait until they have."""
        names = [name for name, (each, _, _) in CLIENTS.items() if each == role]
        for name in names:
            self.clients[name].terminate()
        deadline = time.monotonic() + timeout_seconds
        for name in names:
            try:
                self.clients[name].wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.problems.append(f"{name} did not stop within {timeout_seconds:.0f} s")

    # Servers.

    def primary(self) -> str:
        """Return the node that leads; while none does, the one that led last."""
        self._primary = self.cluster.leader() or self._primary
        return self._primary

    def standby(self) -> str:
        """Return the synchronous standby, or else any."""
        members = self.cluster.members()
        names = [each["name"] for each in members if each["role"] == "sync_standby"]
        return names[0] if names else next(node for node in POSTGRES if node != self.primary())

    def restart_services(self) -> None:
        """Start every server process that has ended, as a service manager would."""
        with self._lock:
            self.cluster.restart_ended()

    def restart(self, name: str) -> None:
        """Kill one server process and start it."""
        self.hold_down(name)()

    def hold_down(self, name: str) -> Callable[[], None]:
        """Kill one server process; no lane starts it before what is returned is called."""
        process = self.cluster.processes[name]
        with self._lock:
            process.kill()
            process.is_held = True

        def release() -> None:
            with self._lock:
                process.is_held = False
                process.start()
                self.cluster.save()

        return release

    def record_promotions(self) -> None:
        """Note when nodes became the leader: only then can a commit have been lost."""
        for node in POSTGRES:
            log = Path(self.cluster.processes[f"patroni@{node}"].log)
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                if PROMOTED in line:
                    moment = datetime.fromisoformat(line[:23])
                    self.recorder.note("promotion", target=node, at=moment.timestamp())

    # Faults.

    def play(self, entries: Iterable[Entry], is_over: threading.Event) -> None:
        """Play faults one after the other until the run is over."""
        for entry in entries:
            if is_over.is_set():
                return
            self._play_one(entry, is_over)
            is_over.wait(entry.pause)

    def _play_one(self, entry: Entry, is_over: threading.Event) -> None:
        kind = KINDS[entry.kind]
        began = self.recorder.now()
        target, heal = kind.begin(self, Random(entry.seed))
        try:
            is_over.wait(entry.seconds)
        finally:
            heal()
        ended = self.recorder.now()
        self.played.append(entry)
        if kind.lane == "server":
            self._recover()
        elif kind.lane == "broker":
            self.recover_brokers()
        self.recorder.note("fault", kind=kind.name, target=target, began=began, ended=ended)
        recovered = self.recorder.now() - ended
        sys.stdout.write(
            f"  {len(self.played):4} {kind.name:22} {target:24} {ended - began:5.1f} s,"
            f" whole after {recovered:5.1f} s\n"
        )
        sys.stdout.flush()

    def _recover(self) -> None:
        """Wait until the cluster is whole, so that the next fault meets one that can bear it."""

        patient_until = time.monotonic() + PATIENCE_SECONDS

        def is_whole() -> bool:
            nonlocal patient_until
            self.restart_services()
            self.check_clients()
            if time.monotonic() > patient_until:
                patient_until = time.monotonic() + PATIENCE_SECONDS
                self._copy_standbys()
            return self.cluster.is_whole() and self.cluster.answers("haproxy")

        try:
            wait_for(is_whole, "the cluster to be whole", RECOVERY_SECONDS)
        except TimeoutError:
            self.problems.append(
                f"the cluster was not whole {RECOVERY_SECONDS:.0f} s after a fault was healed"
            )

    def recover_brokers(self) -> None:
        """Wait until every node of RabbitMQ lets clients in."""

        patient_until = time.monotonic() + PATIENCE_SECONDS

        def is_whole() -> bool:
            nonlocal patient_until
            absent = [node for node in RABBIT if not self.cluster.rabbit_greets(node)]
            if absent and time.monotonic() > patient_until:
                patient_until = time.monotonic() + PATIENCE_SECONDS
                self.restart(f"rabbitmq@{absent[0]}")
                self.restarted += 1
            return not absent

        try:
            wait_for(is_whole, "three RabbitMQ nodes", RECOVERY_SECONDS)
        except TimeoutError:
            self.problems.append(
                f"RabbitMQ was not whole {RECOVERY_SECONDS:.0f} s after a fault was healed"
            )

    def _copy_standbys(self) -> None:
        for member in self.cluster.members():
            if member["role"] != "leader" and member.get("state") not in {"running", "streaming"}:
                try:
                    self.cluster.ask_patroni(member["name"], "reinitialize", {"force": True})
                except OSError:
                    continue
                self.copied += 1
