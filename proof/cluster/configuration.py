"""Configuration files of the servers, and the command that starts each of them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.cluster.network import Network
from proof.cluster.processes import Process

__all__ = ["DATABASE", "Plan", "plan_processes"]

POSTGRES = ("pg1", "pg2", "pg3")
# Apart from the servers. Patroni 3.0 reads from any etcd node, also from one that is cut off
# together with its server: that server then takes the leader's key back from its successor, and
# what the successor acknowledged is lost.
ETCD = ("et1", "et2", "et3")
RABBIT = ("rq1", "rq2", "rq3")
DATABASE = "postroad"
# Seconds. A leader that does not renew its key for TTL is replaced. Patroni wants
# loop + 2 * retry <= ttl.
TTL, LOOP, RETRY = 15, 2, 5
_RABBIT_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"


@dataclass(frozen=True)
class Plan:
    """What a cluster is made of."""

    folder: Path
    network: Network
    password: str
    is_synchronous: bool = True
    has_rabbit: bool = True
    # Port of Erlang's name server; on loopback one of them serves all nodes.
    names_port: int = 4369

    def data(self, node: str) -> Path:
        """Return the folder of a node."""
        return self.folder / node


def plan_processes(plan: Plan) -> list[Process]:
    """Write every configuration file and return the processes in the order they start."""
    processes = [_etcd(plan, node) for node in ETCD]
    processes += [_patroni(plan, node) for node in POSTGRES]
    if plan.has_rabbit:
        processes += _rabbits(plan)
    return [*processes, _haproxy(plan), _pgbouncer(plan)]


def _process(
    plan: Plan, node: str, what: str, command: list[str], environment: dict[str, str] | None = None
) -> Process:
    base = {"PATH": os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin", "LANG": "C.UTF-8"}
    home = plan.data(node)
    return Process(
        name=f"{what}@{node}",
        command=command,
        environment={**base, "HOME": str(home), **(environment or {})},
        log=str(home / f"{what}.log"),
        inside=plan.network.inside(node),
    )


def _write(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    # Holds the password.
    file.chmod(0o640)
    return str(file)


def _etcd(plan: Plan, node: str) -> Process:
    address = plan.network.address(node)
    members = ",".join(f"{each}=http://{plan.network.address(each)}:2380" for each in ETCD)
    options = {
        "name": node,
        "data-dir": str(plan.data(node) / "etcd"),
        "listen-peer-urls": f"http://{address}:2380",
        "listen-client-urls": f"http://{address}:2379",
        "initial-advertise-peer-urls": f"http://{address}:2380",
        "advertise-client-urls": f"http://{address}:2379",
        "initial-cluster": members,
        "initial-cluster-token": plan.folder.name,
        "heartbeat-interval": "200",
        "election-timeout": "2000",
        "log-level": "warn",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    # Sixteen transactions' worth of its log are enough here; the folder may be a small one.
    words += ["--snapshot-count", "5000", "--auto-compaction-retention", "5m", "--enable-v2"]
    return _process(plan, node, "etcd", ["etcd", *words])


def _patroni(plan: Plan, node: str) -> Process:
    network, home = plan.network, plan.data(node)
    address = network.address(node)
    hosts = [network.address(each) for each in (*POSTGRES, "front")]
    clients = [f"{network.host_address}/32", *(f"{host}/32" for host in hosts)]
    if not network.has_namespaces:
        clients = ["127.0.0.0/8"]
    parameters = {
        "max_connections": 120,
        "max_locks_per_transaction": 256,
        "wal_level": "replica",
        "shared_buffers": "64MB",
        "min_wal_size": "64MB",
        "max_wal_size": "192MB",
        "max_slot_wal_keep_size": "256MB",
        "wal_keep_size": "32MB",
        "wal_sender_timeout": "10s",
        "wal_receiver_timeout": "10s",
        "tcp_keepalives_idle": 5,
        "tcp_keepalives_interval": 2,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": "10s",
        "log_line_prefix": "%m [%p] ",
        "log_checkpoints": "off",
        "unix_socket_directories": str(home),
    }
    users = {
        "superuser": {"username": "postgres", "password": plan.password},
        "replication": {"username": "replicator", "password": plan.password},
        "rewind": {"username": "rewinder", "password": plan.password},
    }
    settings: dict[str, Any] = {
        "scope": "postroad",
        "name": node,
        "restapi": {"listen": f"{address}:8008", "connect_address": f"{address}:8008"},
        # By version 2 of etcd's interface. With version 3, Patroni before 3.0.3 writes the leader's
        # key without a condition: a primary that was suspended takes it back from its successor.
        "etcd": {"hosts": [f"{network.address(each)}:2379" for each in ETCD]},
        "bootstrap": {
            "dcs": {
                "ttl": TTL,
                "loop_wait": LOOP,
                "retry_timeout": RETRY,
                "maximum_lag_on_failover": 1048576,
                "synchronous_mode": plan.is_synchronous,
                "synchronous_mode_strict": plan.is_synchronous,
                "postgresql": {
                    # A node that has followed another timeline is copied again. pg_rewind from a
                    # primary that was promoted twice within seconds left standbys that wait for
                    # records that do not exist.
                    "use_pg_rewind": False,
                    "remove_data_directory_on_diverged_timelines": True,
                    "parameters": parameters,
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            "pg_hba": [
                "local all all trust",
                *(f"host all all {client} scram-sha-256" for client in clients),
                *(f"host replication replicator {client} scram-sha-256" for client in clients),
            ],
        },
        "postgresql": {
            "listen": f"{address}:5432",
            "connect_address": f"{address}:5432",
            "data_dir": str(home / "data"),
            "bin_dir": str(_programs(plan, node)),
            "pgpass": str(home / "pgpass"),
            "authentication": users,
            # A copy begins at once, not after a checkpoint spread over minutes.
            "basebackup": [{"checkpoint": "fast"}],
            "parameters": {"unix_socket_directories": str(home), "logging_collector": "off"},
        },
        "watchdog": {"mode": "off"},
    }
    file = _write(home / "patroni.yml", json.dumps(settings, indent=1))
    return _process(plan, node, "patroni", ["patroni", file])


def _programs(plan: Plan, node: str) -> Path:
    """Make a folder with PostgreSQL's programs in which the server has a clock that can jump."""
    real = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[0]
    folder = plan.data(node) / "bin"
    folder.mkdir(exist_ok=True)
    for program in real.iterdir():
        (folder / program.name).unlink(missing_ok=True)
        (folder / program.name).symlink_to(program)
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if libraries:
        clock = plan.data(node) / "clock"
        clock.write_text("+0\n", encoding="utf-8")
        clock.chmod(0o644)
        (folder / "postgres").unlink()
        script = (
            f"#!/bin/sh\nexport LD_PRELOAD={libraries[0]} FAKETIME_TIMESTAMP_FILE={clock}\n"
            "export FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n"
            f'exec {real}/postgres "$@"\n'
        )
        (folder / "postgres").write_text(script, encoding="utf-8")
        (folder / "postgres").chmod(0o755)
    return folder


def _haproxy(plan: Plan) -> Process:
    network, home = plan.network, plan.data("front")
    address = network.address("front")

    def servers(nodes: tuple[str, ...], port: int, options: str) -> str:
        return "\n".join(
            f"    server {node} {network.address(node)}:{port} {options}" for node in nodes
        )

    lines = f"""\
global
    maxconn 600
    stats socket {home}/haproxy.sock mode 600
defaults
    mode tcp
    retries 2
    timeout connect 3s
    timeout client 1h
    timeout server 1h
    timeout check 3s
listen primary
    bind {address}:5000
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 1s fall 3 rise 1 on-marked-down shutdown-sessions
{servers(POSTGRES, 5432, "maxconn 150 check port 8008")}
listen replicas
    bind {address}:5001
    option httpchk OPTIONS /replica
    http-check expect status 200
    default-server inter 1s fall 3 rise 1 on-marked-down shutdown-sessions
{servers(POSTGRES, 5432, "maxconn 150 check port 8008")}
"""
    if plan.has_rabbit:
        lines += f"""\
listen rabbitmq
    bind {address}:5672
    balance roundrobin
    default-server inter 1s fall 3 rise 1 on-marked-down shutdown-sessions
{servers(RABBIT, 5672, "check")}
"""
    file = _write(home / "haproxy.cfg", lines)
    return _process(plan, "front", "haproxy", ["haproxy", "-db", "-f", file])


def _pgbouncer(plan: Plan) -> Process:
    home, address = plan.data("front"), plan.network.address("front")
    users = _write(home / "users.txt", f'"postgres" "{plan.password}"\n')
    file = _write(
        home / "pgbouncer.ini",
        f"""\
[databases]
* = host={address} port=5000
[pgbouncer]
listen_addr = {address}
listen_port = 6432
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
max_client_conn = 400
default_pool_size = 20
server_connect_timeout = 3
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
""",
    )
    return _process(plan, "front", "pgbouncer", ["pgbouncer", file])


def _rabbits(plan: Plan) -> list[Process]:
    network = plan.network
    names = [f"{node}@{network.address(node)}" for node in RABBIT]
    members = "\n".join(
        f"cluster_formation.classic_config.nodes.{number} = {name}"
        for number, name in enumerate(names, 1)
    )
    processes = []
    for number, (node, name) in enumerate(zip(RABBIT, names, strict=True)):
        home, address = plan.data(node), network.address(node)
        cookie = home / ".erlang.cookie"
        cookie.unlink(missing_ok=True)
        cookie.write_text(plan.password, encoding="utf-8")
        cookie.chmod(0o400)
        file = _write(
            home / "rabbitmq.conf",
            f"""\
listeners.tcp.default = {address}:5672
cluster_formation.peer_discovery_backend = classic_config
{members}
cluster_partition_handling = pause_minority
default_user = postroad
default_pass = {plan.password}
loopback_users = none
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
log.file.level = warning
""",
        )
        (home / "enabled_plugins").write_text("[].", encoding="utf-8")
        interface = "{" + address.replace(".", ",") + "}"
        environment = {
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODENAME": name,
            # Different ones: RabbitMQ refuses one that the name server has seen, on any address.
            "RABBITMQ_DIST_PORT": str(25672 + number),
            "ERL_EPMD_PORT": str(plan.names_port),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "rabbit.pid"),
            "RABBITMQ_CONFIG_FILE": file,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {interface} net_ticktime 10"
                " +sbwt none +sbwtdcpu none +sbwtdio none +S 1:1"
            ),
            # The script becomes the server instead of its parent, so that our pid is its pid.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        if network.has_namespaces or node == RABBIT[0]:
            # A name server of ours: the one that Erlang would start belongs to no process group.
            command = [shutil.which("epmd") or "epmd", "-port", str(plan.names_port)]
            processes.append(_process(plan, node, "epmd", command))
        processes.append(_process(plan, node, "rabbitmq", [_RABBIT_SERVER], environment))
    return processes
