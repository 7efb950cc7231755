"""Where nodes run: each in a network namespace on one bridge, or all on loopback addresses.

Namespaces need root. Without them every node still has an address of its own (127.77.…), so that
all configuration is the same; only faults of the network are not possible there.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass

__all__ = ["Network", "run"]

NODES = {
    "pg1": 11,
    "pg2": 12,
    "pg3": 13,
    "et1": 15,
    "et2": 16,
    "et3": 17,
    "rq1": 21,
    "rq2": 22,
    "rq3": 23,
    "front": 31,
}


def run(*command: str, text: str | None = None) -> str:
    """Run a command, return its output; a failure carries what it printed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Network:
    """The addresses of one cluster. `number` tells clusters of one machine apart."""

    number: int
    has_namespaces: bool

    @classmethod
    def create(cls, is_loopback: bool = False) -> Network:
        """Take a free number and make bridge and namespaces; without the right to, use loopback."""
        if os.geteuid() == 0 and not is_loopback:
            for number in range(256):
                network = cls(number, True)
                try:
                    run("ip", "link", "add", network.bridge, "type", "bridge")
                except (RuntimeError, FileNotFoundError) as failure:
                    if "exists" in str(failure):
                        continue
                    break
                try:
                    network._connect()
                except RuntimeError:
                    network.remove()
                    break
                return network
        for number in range(256):
            network = cls(number, False)
            if _is_free(network.address("pg1"), 5432):
                return network
        raise RuntimeError("no free addresses for a cluster")

    @property
    def bridge(self) -> str:
        """The name of the bridge; clients on the host reach the nodes through it."""
        return f"prbr{self.number}"

    def address(self, node: str) -> str:
        """Return the address of a node."""
        prefix = "10.213" if self.has_namespaces else "127.77"
        return f"{prefix}.{self.number}.{NODES[node]}"

    @property
    def host_address(self) -> str:
        """The address of clients, as nodes see it."""
        return f"10.213.{self.number}.1" if self.has_namespaces else "127.0.0.1"

    def namespace(self, node: str) -> str:
        """Return the name of a node's namespace."""
        return f"pr{self.number}-{node}"

    def inside(self, node: str) -> list[str]:
        """Return the words that run a command on a node."""
        return ["ip", "netns", "exec", self.namespace(node)] if self.has_namespaces else []

    def remove(self) -> None:
        """Remove bridge and namespaces; their processes must have ended before."""
        if not self.has_namespaces:
            return
        there = run("ip", "netns", "list").split()
        for node in NODES:
            if self.namespace(node) in there:
                run("ip", "netns", "del", self.namespace(node))
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def processes(self) -> list[int]:
        """Return the ids of all processes inside the namespaces of this cluster."""
        if not self.has_namespaces:
            return []
        there = run("ip", "netns", "list").split()
        names = [self.namespace(node) for node in NODES if self.namespace(node) in there]
        return [int(pid) for name in names for pid in run("ip", "netns", "pids", name).split()]

    def _connect(self) -> None:
        run("ip", "addr", "add", f"{self.host_address}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        for node, last in NODES.items():
            name, outer = self.namespace(node), f"prv{self.number}n{last}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", outer, "master", self.bridge, "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
