"""`make cluster`: start a cluster, show it, stop it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from proof.cluster import ETCD, POSTGRES, RABBIT, Cluster, default_folder


def main() -> int:
    """Do what the first word asks for."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("action", choices=("start", "show", "stop"))
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("--asynchronous", action="store_true", help="without synchronous commits")
    parser.add_argument("--loopback", action="store_true", help="without network namespaces")
    parser.add_argument("--no-rabbit", action="store_true", help="PostgreSQL only")
    given = parser.parse_args()
    cluster = Cluster.find(given.folder)
    if given.action == "start" and cluster is None:
        cluster = Cluster.start(
            given.folder,
            is_synchronous=not given.asynchronous,
            has_rabbit=not given.no_rabbit,
            is_loopback=given.loopback,
        )
    elif given.action == "stop":
        if cluster is not None:
            cluster.stop()
        print("stopped" if cluster else "there was no cluster")
        return 0
    if cluster is None:
        print(f"no cluster in {given.folder}; start one with: make cluster", file=sys.stderr)
        return 1
    _show(cluster)
    return 0


def _show(cluster: Cluster) -> None:
    network = cluster.plan.network
    kind = "network namespaces" if network.has_namespaces else "loopback addresses"
    print(f"cluster in {cluster.plan.folder}, nodes on {kind}")
    members = {each["name"]: each for each in cluster.members()}
    for node in POSTGRES:
        member = members.get(node, {})
        role, state = member.get("role", "unknown"), member.get("state", "unknown")
        lag = member.get("lag", 0)
        print(f"  {node}    {network.address(node):15} {role:13} {state:10} lag {lag}")
    if cluster.plan.has_rabbit:
        for node in RABBIT:
            state = "running" if cluster.rabbit_greets(node) else "not ready"
            print(f"  {node}    {network.address(node):15} RabbitMQ      {state}")
    for node in ETCD:
        state = "running" if cluster.processes[f"etcd@{node}"].is_running else "ended"
        print(f"  {node}    {network.address(node):15} etcd          {state}")
    for name in ("haproxy@front", "pgbouncer@front"):
        state = "running" if cluster.processes[name].is_running else "ended"
        print(f"  front  {network.address('front'):15} {name.partition('@')[0]:13} {state}")
    for route in ("direct", "haproxy", "pooled"):
        print(f"{route}: {cluster.dsn(route)}")
    if cluster.plan.has_rabbit:
        print(f"amqp: {cluster.amqp_url}")


if __name__ == "__main__":
    sys.exit(main())
