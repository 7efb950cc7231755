"""The kinds of faults: how each begins, on which target, and how it is healed.

`begin` returns the target, for the record, and the function that heals. Faults of one lane follow
each other, those of different lanes overlap: the servers of the database and the network between
them; the nodes of RabbitMQ; clients, proxies and single connections.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import urllib.error
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from proof.cluster import ETCD, POSTGRES, RABBIT
from proof.cluster.network import run
from proof.cluster.processes import children_of, wait_for
from proof.faults.proxy import SYNC, Cut
from proof.history.checkers import SERVER_JUMP

if TYPE_CHECKING:
    from proof.faults.driver import Driver

__all__ = ["KINDS", "LANES", "Kind", "Lane"]

Heal = Callable[[], None]
Begin = Callable[["Driver", Random], tuple[str, Heal]]
Lane = Literal["client", "server", "broker"]
LANES: tuple[Lane, ...] = ("client", "server", "broker")
# A server's time-outs: 15 s for the leader's key, 10 s for replication, 30 s of keepalives.
LONGER_THAN_TIMEOUTS = (32.0, 40.0)


@dataclass(frozen=True)
class Kind:
    """One kind of fault. `seconds`: how long it lasts, between these bounds."""

    name: str
    meaning: str
    begin: Begin
    seconds: tuple[float, float]
    weight: int = 2
    lane: Lane = "server"
    # May another node lead after it: only then can asynchronous replication lose commits.
    can_fail_over: bool = True
    needs_namespaces: bool = False


def _nothing() -> None:
    """Heal what heals by itself."""


# Processes.


def _kill(pids: Iterable[int], which: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)


def _postmaster(driver: Driver, node: str) -> list[int]:
    pid = driver.cluster.postmaster(node)
    return [pid] if pid else []


def _kill_primary(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.primary()
    _kill(_postmaster(driver, node))
    return node, _nothing


def _backends(driver: Driver, node: str) -> list[int]:
    found = []
    for postmaster in _postmaster(driver, node):
        for pid in children_of(postmaster):
            with contextlib.suppress(OSError):
                if b" postroad " in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


def _kill_backends(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.primary()
    _kill(_backends(driver, node))
    return node, _nothing


def _end_sessions(driver: Driver, chance: Random) -> tuple[str, Heal]:
    node = driver.primary()
    pids = _backends(driver, node)
    _kill(chance.sample(pids, (len(pids) + 1) // 2), signal.SIGTERM)
    return node, _nothing


def _freeze(driver: Driver, node: str, *, with_patroni: bool) -> tuple[str, Heal]:
    frozen = [pid for each in _postmaster(driver, node) for pid in children_of(each)]
    if with_patroni and (patroni := driver.cluster.processes[f"patroni@{node}"]).is_running:
        frozen += children_of(patroni.pid or 0)
    _kill(frozen, signal.SIGSTOP)
    return node, lambda: _kill(frozen, signal.SIGCONT)


def _freeze_primary(driver: Driver, _: Random) -> tuple[str, Heal]:
    return _freeze(driver, driver.primary(), with_patroni=True)


def _freeze_standby(driver: Driver, _: Random) -> tuple[str, Heal]:
    return _freeze(driver, driver.standby(), with_patroni=False)


def _kill_patroni(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.primary()
    return node, driver.hold_down(f"patroni@{node}")


def _kill_etcd(driver: Driver, chance: Random) -> tuple[str, Heal]:
    node = chance.choice(ETCD)
    return node, driver.hold_down(f"etcd@{node}")


def _restart_front(service: str) -> Begin:
    def begin(driver: Driver, _: Random) -> tuple[str, Heal]:
        driver.restart(f"{service}@front")
        return "front", _nothing

    return begin


def _rabbit_rest(node: str) -> list[str]:
    return [each for each in RABBIT if each != node]


def _kill_rabbit(driver: Driver, chance: Random) -> tuple[str, Heal]:
    node = chance.choice(RABBIT)
    return node, driver.hold_down(f"rabbitmq@{node}")


def _freeze_rabbit(driver: Driver, chance: Random) -> tuple[str, Heal]:
    node = chance.choice(RABBIT)
    frozen = children_of(driver.cluster.processes[f"rabbitmq@{node}"].pid or 0)
    _kill(frozen, signal.SIGSTOP)
    return node, lambda: _kill(frozen, signal.SIGCONT)


def _switchover(driver: Driver, _: Random) -> tuple[str, Heal]:
    node, candidate = driver.primary(), driver.standby()
    body = {"leader": node, "candidate": candidate}
    try:
        driver.cluster.ask_patroni(node, "switchover", body)
    except (urllib.error.URLError, OSError):
        # Refused where the standby is not in step; the request itself is the fault.
        return f"{node} refused", _nothing
    return f"{node} to {candidate}", _nothing


# The network. A rule set per node; rules name the addresses of the other side.


def _rules(driver: Driver, node: str, incoming: Sequence[str], outgoing: Sequence[str]) -> Heal:
    inside = driver.cluster.plan.network.inside(node)
    hooks = {"in": ("input", incoming), "out": ("output", outgoing)}
    chains = "".join(
        f"chain {name} {{\ntype filter hook {hook} priority 0; policy accept;\n"
        + "".join(f"{rule}\n" for rule in rules)
        + "}\n"
        for name, (hook, rules) in hooks.items()
        if rules
    )
    run(*inside, "nft", "-f", "-", text=f"table inet proof {{\n{chains}}}\n")
    return lambda: _remove_rules(inside)


def _remove_rules(inside: list[str]) -> None:
    run(*inside, "nft", "delete", "table", "inet", "proof")


def _addresses(driver: Driver, nodes: Iterable[str]) -> str:
    network = driver.cluster.plan.network
    return "{ " + ", ".join(network.address(node) for node in nodes) + " }"


def _others(driver: Driver, node: str) -> str:
    found = _addresses(driver, [each for each in (*POSTGRES, *ETCD, "front") if each != node])
    return found.replace(" }", f", {driver.cluster.plan.network.host_address} }}")


def _partition(direction: str) -> Begin:
    def begin(driver: Driver, _: Random) -> tuple[str, Heal]:
        node = driver.primary()
        others = _others(driver, node)
        incoming = [f"ip saddr {others} drop"] if direction in ("both", "in") else []
        outgoing = [f"ip daddr {others} drop"] if direction in ("both", "out") else []
        return node, _rules(driver, node, incoming, outgoing)

    return begin


def _partition_etcd(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.primary()
    etcd = _addresses(driver, ETCD)
    heal = _rules(driver, node, [f"ip saddr {etcd} drop"], [f"ip daddr {etcd} drop"])
    return node, heal


def _partition_quorum(driver: Driver, _: Random) -> tuple[str, Heal]:
    """Cut two of three etcd nodes from each other and from the third: no majority decides."""
    heals = []
    for node in ETCD[:2]:
        peers = _addresses(driver, [each for each in ETCD if each != node])
        heals.append(_rules(driver, node, [f"ip saddr {peers} drop"], []))
    return "etcd", lambda: _heal_all(heals)


def _heal_all(heals: list[Heal]) -> None:
    for heal in heals:
        heal()


def _partition_replication(driver: Driver, _: Random) -> tuple[str, Heal]:
    """Cut replication only: etcd, Patroni and the clients still reach everything."""
    node = driver.primary()
    peers = _addresses(driver, [each for each in POSTGRES if each != node])
    return node, _rules(driver, node, [f"ip saddr {peers} tcp dport 5432 drop"], [])


def _partition_standby(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.standby()
    others = _others(driver, node)
    heal = _rules(driver, node, [f"ip saddr {others} drop"], [f"ip daddr {others} drop"])
    return node, heal


def _partition_all(driver: Driver, _: Random) -> tuple[str, Heal]:
    """Cut every server from the other two; etcd and the clients reach them."""
    heals = []
    for node in POSTGRES:
        peers = _addresses(driver, [each for each in POSTGRES if each != node])
        heals.append(_rules(driver, node, [f"ip saddr {peers} drop"], []))
    return "all", lambda: _heal_all(heals)


def _partition_rabbit(driver: Driver, chance: Random) -> tuple[str, Heal]:
    """Cut one of three nodes from the majority; clients still reach it."""
    node = chance.choice(RABBIT)
    peers = _addresses(driver, _rabbit_rest(node))
    heal = _rules(driver, node, [f"ip saddr {peers} drop"], [f"ip daddr {peers} drop"])
    return node, heal


def _lose_packets(driver: Driver, chance: Random) -> tuple[str, Heal]:
    node, percent = driver.primary(), chance.choice((5, 15, 30))
    rule = f"numgen random mod 100 < {percent} drop"
    return f"{node} {percent} %", _rules(driver, node, [rule], [rule])


def _delay_packets(driver: Driver, chance: Random) -> tuple[str, Heal]:
    """Delay every packet of the primary by the kernel's own means."""
    node, milliseconds = driver.primary(), chance.choice((20, 100, 300))
    words = ["dev", "eth0", "root", "netem", "delay", f"{milliseconds}ms", f"{milliseconds // 2}ms"]
    inside = driver.cluster.plan.network.inside(node)
    run(*inside, "tc", "qdisc", "add", *words)
    return f"{node} {milliseconds} ms", lambda: _remove_delay(inside)


def _remove_delay(inside: list[str]) -> None:
    run(*inside, "tc", "qdisc", "del", "dev", "eth0", "root")


# Disk, clock, clients and connections.


def _fill_disk(driver: Driver, _: Random) -> tuple[str, Heal]:
    node = driver.primary()
    file = driver.cluster.plan.data(node) / "filler"
    size = 1 << 26
    with file.open("wb", buffering=0) as stream:
        # By halves, down to the last page: what does not fit as a whole is not allocated at all.
        while size >= resource.getpagesize():
            try:
                os.posix_fallocate(stream.fileno(), os.fstat(stream.fileno()).st_size, size)
            except OSError:
                size //= 2

    def heal() -> None:
        file.unlink(missing_ok=True)
        driver.restart_services()

    return node, heal


def _slow_disk(driver: Driver, chance: Random) -> tuple[str, Heal]:
    """Delay every write to the primary's files, by stopping the process at the system call."""
    node, milliseconds = driver.primary(), chance.choice((20, 100))
    calls = "fdatasync,fsync,pwrite64,pwritev"
    words = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    words += ["-e", f"inject={calls}:delay_enter={milliseconds * 1000}"]
    for postmaster in _postmaster(driver, node):
        for pid in children_of(postmaster):
            words += ["-p", str(pid)]
    tracer = subprocess.Popen(["strace", *words], stderr=subprocess.DEVNULL)

    def heal() -> None:
        # It lets go of the processes that it has stopped.
        tracer.terminate()
        tracer.wait()

    return f"{node} {milliseconds} ms", heal


def _jump_server_clock(driver: Driver, chance: Random) -> tuple[str, Heal]:
    """Let the clock of the primary's PostgreSQL jump, less than the queues are drained for."""
    node, seconds = driver.primary(), chance.choice((-60, -10, 10, 60))
    clock = driver.cluster.plan.data(node) / "clock"
    clock.write_text(f"{seconds:+d}\n", encoding="utf-8")
    return f"{node} {seconds:+d} s", lambda: _set_clock(clock)


def _jump_clock(driver: Driver, chance: Random) -> tuple[str, Heal]:
    seconds = chance.choice((-3600, -90, 90, 3600))
    driver.clock.write_text(f"{seconds:+d}\n", encoding="utf-8")
    return f"{seconds:+d} s", lambda: _set_clock(driver.clock)


def _set_clock(file: Path) -> None:
    file.write_text("+0\n", encoding="utf-8")


def _kill_client(driver: Driver, chance: Random) -> tuple[str, Heal]:
    name = chance.choice(sorted(driver.clients))
    driver.clients[name].send_signal(signal.SIGKILL)
    driver.clients[name].wait()
    return name, lambda: driver.start_client(name)


def _freeze_client(driver: Driver, chance: Random) -> tuple[str, Heal]:
    """Stop a client for longer than its leases last."""
    name = chance.choice(sorted(driver.clients))
    process = driver.clients[name]
    process.send_signal(signal.SIGSTOP)
    return name, lambda: process.send_signal(signal.SIGCONT)


def _cut(cut: Cut) -> Begin:
    def begin(driver: Driver, _: Random) -> tuple[str, Heal]:
        driver.proxy.arm(cut)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not driver.proxy.is_armed, "a call to cut", 5)
        made = not driver.proxy.is_armed
        driver.proxy.arm(None)
        return "proxy" if made else "proxy, nothing sent", _nothing

    return begin


def _slow_client(driver: Driver, chance: Random) -> tuple[str, Heal]:
    driver.proxy.delay_seconds = chance.choice((0.05, 0.3))
    target = f"proxy {driver.proxy.delay_seconds * 1000:.0f} ms"

    def heal() -> None:
        driver.proxy.delay_seconds = 0.0

    return target, heal


_LONG, _SHORT, _MOMENT = (15.0, 30.0), (2.0, 8.0), (0.0, 0.0)
_CHEAP: dict[str, Any] = {"lane": "client", "can_fail_over": False}
_BROKER: dict[str, Any] = {"lane": "broker", "can_fail_over": False}
_NETWORK: dict[str, Any] = {"needs_namespaces": True}

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("kill_primary", "kill -9 of the primary's postmaster", _kill_primary, _SHORT, 3),
        Kind("kill_backends", "kill -9 of all client backends", _kill_backends, _MOMENT, 3),
        Kind(
            "freeze_primary",
            "SIGSTOP of the primary and its Patroni, longer than every time-out",
            _freeze_primary,
            LONGER_THAN_TIMEOUTS,
            1,
        ),
        Kind("freeze_standby", "SIGSTOP of the synchronous standby", _freeze_standby, _LONG),
        Kind("switchover", "planned switchover", _switchover, _MOMENT, 4),
        Kind("kill_patroni", "kill -9 of Patroni beside the primary", _kill_patroni, _LONG),
        Kind("kill_etcd", "kill -9 of an etcd node", _kill_etcd, _SHORT),
        Kind(
            "partition",
            "primary cut from everything, in both directions",
            _partition("both"),
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_out",
            "nothing that the primary sends arrives",
            _partition("out"),
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_in",
            "nothing arrives at the primary",
            _partition("in"),
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_etcd",
            "primary cut from etcd only",
            _partition_etcd,
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_replication",
            "primary cut from its standbys' replication only",
            _partition_replication,
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_minority",
            "a standby cut from the majority",
            _partition_standby,
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "partition_all",
            "each server cut from the other two",
            _partition_all,
            _LONG,
            1,
            **_NETWORK,
        ),
        Kind(
            "partition_quorum",
            "etcd without a majority",
            _partition_quorum,
            _LONG,
            1,
            **_NETWORK,
        ),
        Kind(
            "lose_packets",
            "5, 15 or 30 % of the primary's packets lost",
            _lose_packets,
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "delay_packets",
            "the primary's packets delayed by 20 to 300 ms (netem)",
            _delay_packets,
            _LONG,
            **_NETWORK,
        ),
        Kind(
            "fill_disk", "the primary's disk is full", _fill_disk, _SHORT, 1, needs_namespaces=True
        ),
        Kind(
            "slow_disk",
            "each write and fsync of the primary late by 20 or 100 ms (strace)",
            _slow_disk,
            _SHORT,
        ),
        Kind(
            SERVER_JUMP,
            "the clock of the primary's PostgreSQL jumps by 10 or 60 s",
            _jump_server_clock,
            _SHORT,
        ),
        Kind("kill_rabbit", "kill -9 of a RabbitMQ node", _kill_rabbit, _SHORT, **_BROKER),
        Kind(
            "freeze_rabbit",
            "SIGSTOP of a RabbitMQ node, longer than its peers wait",
            _freeze_rabbit,
            _LONG,
            **_BROKER,
        ),
        Kind(
            "partition_rabbit",
            "a RabbitMQ node cut from the majority",
            _partition_rabbit,
            _LONG,
            needs_namespaces=True,
            **_BROKER,
        ),
        Kind("kill_client", "kill -9 of a client or worker", _kill_client, (0.2, 2), 5, **_CHEAP),
        Kind(
            "freeze_client",
            "SIGSTOP of a client or worker, longer than its leases",
            _freeze_client,
            (7, 10),
            2,
            **_CHEAP,
        ),
        Kind("jump_clock", "the clock of clients jumps", _jump_clock, (3, 8), 2, **_CHEAP),
        Kind(
            "lost_commit",
            "connection cut before a COMMIT arrives",
            _cut(Cut("request")),
            _MOMENT,
            4,
            **_CHEAP,
        ),
        Kind(
            "lost_commit_reply",
            "COMMIT done, its answer lost",
            _cut(Cut("reply")),
            _MOMENT,
            6,
            **_CHEAP,
        ),
        Kind(
            "lost_reply",
            "call in autocommit done, its answer lost",
            _cut(Cut("reply", SYNC)),
            _MOMENT,
            6,
            **_CHEAP,
        ),
        Kind(
            "slow_client",
            "every packet of clients late by 50 or 300 ms",
            _slow_client,
            (3, 8),
            2,
            **_CHEAP,
        ),
        Kind(
            "end_sessions",
            "half of the sessions ended by the server",
            _end_sessions,
            _MOMENT,
            3,
            **_CHEAP,
        ),
        Kind(
            "restart_pgbouncer",
            "kill -9 and start of PgBouncer",
            _restart_front("pgbouncer"),
            _MOMENT,
            2,
            **_CHEAP,
        ),
        Kind(
            "restart_haproxy",
            "kill -9 and start of HAProxy",
            _restart_front("haproxy"),
            _MOMENT,
            2,
            **_CHEAP,
        ),
    )
}
