"""Start, describe and stop a cluster; answer which node leads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from proof.cluster.configuration import DATABASE, POSTGRES, RABBIT, Plan, plan_processes
from proof.cluster.network import NODES, Network, run
from proof.cluster.processes import Process, children_of, service_user, start_time, wait_for
from proof.options import ROOT

__all__ = ["Cluster", "default_folder"]

# Space of one PostgreSQL node; a full disk is reached with one file.
NODE_MEGABYTES = 1536


def default_folder() -> Path:
    """Return the folder of this checkout's cluster; each checkout has one of its own."""
    mark = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"postroad-cluster-{mark}"


@dataclass
class Cluster:
    """A cluster that runs, or has been started by another program and is found by its folder."""

    plan: Plan
    processes: dict[str, Process]
    mounts: list[str]

    @classmethod
    def start(
        cls,
        folder: Path | None = None,
        *,
        is_synchronous: bool = True,
        has_rabbit: bool = True,
        is_loopback: bool = False,
    ) -> Cluster:
        """Start everything and wait until it accepts work."""
        folder = folder or default_folder()
        if (folder / "cluster.json").exists():
            raise RuntimeError(f"{folder} holds a cluster already; stop it first")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        network = Network.create(is_loopback)
        plan = Plan(
            folder,
            network,
            secrets.token_hex(12),
            is_synchronous,
            has_rabbit,
            4369 if network.has_namespaces else _free_port(),
        )
        cluster = cls(plan, {}, [])
        try:
            for node in NODES:
                cluster._make_folder(node)
            cluster.processes = {each.name: each for each in plan_processes(plan)}
            cluster._give_folders()
            cluster.save()
            cluster.restart_ended()
            cluster.wait_ready()
            with psycopg.connect(cluster.dsn("direct", "postgres"), autocommit=True) as connection:
                connection.execute(f"create database {DATABASE}")
        except BaseException as failure:
            failure.add_note(cluster.log_ends())
            cluster.stop()
            raise
        return cluster

    @classmethod
    def find(cls, folder: Path | None = None) -> Cluster | None:
        """Find a cluster that was started before; None when there is none."""
        file = (folder or default_folder()) / "cluster.json"
        if not file.exists():
            return None
        stored = json.loads(file.read_text(encoding="utf-8"))
        plan = stored["plan"]
        plan["folder"], plan["network"] = Path(plan["folder"]), Network(**plan["network"])
        processes = {each["name"]: Process(**each) for each in stored["processes"]}
        return cls(Plan(**plan), processes, stored["mounts"])

    def log_ends(self, lines: int = 8) -> str:
        """Return the last lines of every log."""
        ends = []
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                text = Path(process.log).read_text(encoding="utf-8", errors="replace")
                ends += [f"--- {process.name}", *text.splitlines()[-lines:]]
        return "\n".join(ends)

    def save(self) -> None:
        """Write what another program needs to find and stop this cluster."""
        stored: dict[str, Any] = {
            "plan": asdict(self.plan),
            "processes": [asdict(process) for process in self.processes.values()],
            "mounts": self.mounts,
        }
        file = self.plan.folder / "cluster.json"
        written = file.with_suffix(".new")
        written.write_text(json.dumps(stored, indent=1, default=str), encoding="utf-8")
        written.chmod(0o600)
        written.replace(file)

    def restart_ended(self) -> list[str]:
        """Start every process that has ended, as a service manager would; return their names.

        Those that a fault holds down stay down.
        """
        ended = [each for each in self.processes.values() if not each.is_running]
        started = [each for each in ended if not each.is_held]
        for process in started:
            process.start()
        if started:
            self.save()
        return [process.name for process in started]

    def wait_ready(self, timeout_seconds: float = 180) -> None:
        """Wait until a primary takes writes with both standbys streaming, and RabbitMQ is whole."""
        wait_for(self.is_whole, "three PostgreSQL nodes", timeout_seconds)
        wait_for(lambda: self.answers("direct"), "a primary that takes writes", timeout_seconds)
        if self.plan.has_rabbit:
            wait_for(
                lambda: all(self.rabbit_greets(node) for node in RABBIT),
                "three RabbitMQ nodes",
                timeout_seconds,
            )
        wait_for(lambda: self.answers("pooled"), "HAProxy and PgBouncer", timeout_seconds)

    def is_whole(self) -> bool:
        """Whether there is a leader and every other node follows it, one of them synchronously."""
        members = self.members()
        roles = [each["role"] for each in members]
        wanted = "sync_standby" if self.plan.is_synchronous else "replica"
        return (
            len(members) == len(POSTGRES)
            and "leader" in roles
            and wanted in roles
            and all(each.get("state") in {"running", "streaming"} for each in members)
        )

    def members(self) -> list[dict[str, Any]]:
        """Return what Patroni reports of its members; empty when no node answers."""
        for node in POSTGRES:
            with contextlib.suppress(OSError, ValueError):
                address = f"http://{self.plan.network.address(node)}:8008/cluster"
                with urllib.request.urlopen(address, timeout=2) as answer:
                    return list(json.load(answer)["members"])
        return []

    def leader(self) -> str | None:
        """Return the node that leads by Patroni's own report."""
        return next((each["name"] for each in self.members() if each["role"] == "leader"), None)

    def ask_patroni(self, node: str, path: str, body: dict[str, Any]) -> str:
        """Call Patroni's interface on a node: `switchover`, `failover`, `restart`."""
        request = urllib.request.Request(
            f"http://{self.plan.network.address(node)}:8008/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def dsn(self, route: str = "direct", database: str = DATABASE) -> str:
        """Return how clients connect: `direct` to all nodes, by `haproxy`, or `pooled`."""
        network = self.plan.network
        front = network.address("front")
        place: dict[str, Any] = {
            "direct": {
                "host": ",".join(network.address(node) for node in POSTGRES),
                "port": "5432",
                "target_session_attrs": "read-write",
            },
            "haproxy": {"host": front, "port": "5000"},
            "pooled": {"host": front, "port": "6432"},
        }[route]
        return make_conninfo(
            "",
            dbname=database,
            user="postgres",
            password=self.plan.password,
            connect_timeout="3",
            **place,
        )

    @property
    def amqp_url(self) -> str:
        """Where clients of RabbitMQ connect: HAProxy in front of the three nodes."""
        front = self.plan.network.address("front")
        return f"amqp://postroad:{self.plan.password}@{front}:5672/"

    def answers(self, route: str) -> bool:
        """Whether a write transaction is possible on a route."""
        try:
            with psycopg.connect(self.dsn(route, "postgres"), autocommit=True) as connection:
                row = connection.execute("select not pg_is_in_recovery()").fetchone()
                return bool(row and row[0])
        except psycopg.Error:
            return False

    def rabbit_greets(self, node: str) -> bool:
        """Whether a RabbitMQ node lets clients in."""
        address = (self.plan.network.address(node), 5672)
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=2) as client:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            return client.recv(1) == b"\x01"
        return False

    def rabbit_control(self, node: str, *words: str) -> str:
        """Run rabbitmqctl on a node."""
        process = self.processes[f"rabbitmq@{node}"]
        name = process.environment["RABBITMQ_NODENAME"]
        command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", "--longnames", "-n", name, *words]
        user = service_user()
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        done = subprocess.run(
            [*process.inside, *drop, *command],
            env=process.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout

    def rabbit_messages(self) -> int:
        """Count the messages of all queues of RabbitMQ, delivered ones included."""
        listed = self.rabbit_control(RABBIT[0], "list_queues", "--no-table-headers", "messages")
        return sum(int(word) for word in listed.split())

    def postmaster(self, node: str) -> int | None:
        """Return the process id of a node's PostgreSQL, when it runs."""
        file = self.plan.data(node) / "data" / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(file.read_text(encoding="utf-8").split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            # The file of a killed server remains, and its number may be another process's now.
            if str(self.plan.data(node)) in command:
                return pid
        return None

    def stop(self) -> None:
        """End every process of this cluster and remove namespaces, mounts and the folder."""
        # Patroni first: it would start its server again.
        order = sorted(self.processes.values(), key=lambda each: "patroni" not in each.name)
        postmasters = [pid for node in POSTGRES if (pid := self.postmaster(node))]
        for process in order:
            process.kill()
        postmasters += [pid for node in POSTGRES if (pid := self.postmaster(node))]
        for pid in {child for each in postmasters for child in children_of(each)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Whatever a server left behind, and nothing else runs in these namespaces.
        for _ in range(50):
            left = [pid for pid in self.plan.network.processes() if start_time(pid) is not None]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        self.plan.network.remove()
        for mount in self.mounts:
            wait_for(lambda mount=mount: _unmount(mount), f"{mount} unmounted", 30)
        shutil.rmtree(self.plan.folder, ignore_errors=True)

    def _make_folder(self, node: str) -> None:
        folder = self.plan.data(node)
        folder.mkdir(exist_ok=True)
        if node in POSTGRES and self.plan.network.has_namespaces:
            run("mount", "-t", "tmpfs", "-o", f"size={NODE_MEGABYTES}m", "tmpfs", str(folder))
            self.mounts.append(str(folder))

    def _give_folders(self) -> None:
        user = service_user()
        for node in NODES:
            folder = self.plan.data(node)
            if user:
                run("chown", "-R", f"{user}:{user}", str(folder))
            folder.chmod(0o750)


def _unmount(mount: str) -> bool:
    return subprocess.run(["umount", mount], capture_output=True, check=False).returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
