"""Arms: the adapters that can be measured, and how each is started."""

from __future__ import annotations

import inspect
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.install import NotInstalled, installed_node_peer, installed_peer
from postroad.bus import AsyncWorker

__all__ = ["OURS", "PEERS", "ROOT", "Arm", "arm_named", "ours"]

ROOT = Path(__file__).parents[2]
PG_BOSS = "pg-boss@12.35.0"


@dataclass(frozen=True, slots=True)
class Arm:
    """One adapter. `shape` says how it is set up, for the report."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    shape: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is one of Postroad's modes."""
        return self.name.startswith(tuple(_MODES))

    @property
    def has_effects(self) -> bool:
        """Whether its handlers write what they do in the transaction that consumes the job."""
        return self.is_ours and not self.name.startswith("lease")


@dataclass(frozen=True, slots=True)
class _Peer:
    packages: tuple[str, ...]
    shape: str


_MODES = {
    "lease": (
        "lease",
        "AsyncWorker in lease mode: each job is acknowledged, acks are sent in batches; defaults",
    ),
    "transactional": (
        "transaction",
        "AsyncWorker in transaction mode: the commit of the handler's transaction consumes the "
        "job; defaults",
    ),
    "batch": (
        "batch",
        "AsyncWorker with batch handlers in transaction mode: up to 500 jobs are consumed by one "
        "commit, two batches at a time",
    ),
    "cursor": (
        "cursor",
        "AsyncWorker with batch handlers on a consumer with a cursor: up to 500 jobs are read in "
        "order, and a commit moves the cursor",
    ),
}
_HAS_BATCH = "batch" in inspect.signature(AsyncWorker.handler).parameters
OURS = tuple(mode for mode in _MODES if mode != "batch" or _HAS_BATCH)
PEERS = {
    "pgque": _Peer(
        ("psycopg[binary]",),
        "one consumer, a batch acknowledged as a whole; ticks every 50 ms, texts by send_batch",
    ),
    "awa": _Peer(
        ("awa-pg",), "Python binding, queue storage, 2 claimers, 20 connections, enqueue by COPY"
    ),
    "pgmq": _Peer(
        ("pgmq", "asyncpg", "uvloop"),
        "asyncpg and uvloop, 4 readers that read, work and delete in batches, send_batch",
    ),
    "pgqueuer": _Peer(
        ("pgqueuer", "asyncpg", "uvloop"),
        "asyncpg pool and uvloop, batches of half of what is in flight",
    ),
    "pg-boss": _Peer(
        (), "4 workers that fetch, work and complete in batches, burst mode, LISTEN, insert"
    ),
    "absurd": _Peer(
        ("absurd-sdk", "absurdctl", "psycopg[binary]"),
        "tasks without steps, claimed in batches of what is in flight, spawned in a pipeline",
    ),
    "procrastinate": _Peer(
        ("procrastinate", "psycopg[binary,pool]"),
        "batch_defer, up to 20 connections, LISTEN, finished jobs deleted",
    ),
}


def arm_named(name: str, root: Path = ROOT) -> Arm:
    """Return an arm by name, installing a peer first. Raises ValueError or NotInstalled."""
    return _peer(name, root) if name in PEERS else ours(name)


def ours(name: str, tree: Path = ROOT, label: str = "") -> Arm:
    """Return an arm of Postroad from a source tree.

    `lease+100` sets prefetch, `lease*16` has 16 workers share what is in flight. Raises ValueError.
    """
    found = re.fullmatch(rf"({'|'.join(_MODES)})(?:\+(\d+))?(?:\*(\d+))?", name)
    if found is None:
        raise ValueError(f"no arm {name!r}; there are {', '.join((*_MODES, *PEERS))}")
    mode, prefetch, workers = found.groups()
    value, shape = _MODES[mode]
    # The tree under test comes first, the harness from this one.
    path = os.pathsep.join(map(str, (tree / "src", ROOT)))
    environment = {"PYTHONPATH": path, "POSTROAD_MODE": value}
    if prefetch:
        environment["POSTROAD_PREFETCH"] = prefetch
        shape += f", prefetch {prefetch}"
    if workers:
        environment["POSTROAD_WORKERS"] = workers
        shape += f", {workers} workers"
    command = (sys.executable, "-m", "benchmarks.harness.adapter")
    return Arm(name + label, command, environment, shape)


def _peer(name: str, root: Path) -> Arm:
    peer = PEERS[name]
    if name == "pg-boss":
        folder = installed_node_peer(root, name, PG_BOSS)
        command = ("node", str(ROOT / "benchmarks" / "peers" / "harness_pgboss.mjs"))
        return Arm(name, command, {"PGBOSS_FOLDER": str(folder)}, peer.shape)
    if name == "pgque" and not os.environ.get("PGQUE_SQL"):
        raise NotInstalled(
            "its SQL is in no package index; PGQUE_SQL may name the file pgque.sql of a release"
        )
    folder = installed_peer(root, name, peer.packages)
    path = os.pathsep.join(map(str, (folder, ROOT)))
    command = (sys.executable, "-m", f"benchmarks.peers.harness_{name}")
    return Arm(name, command, {"PYTHONPATH": path}, peer.shape)
