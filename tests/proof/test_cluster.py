"""The cluster's own parts that need no server: processes found by id, the plan, the addresses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from postroad.testing import wait_until
from proof.cluster import ETCD, POSTGRES, RABBIT, Cluster, processes
from proof.cluster.configuration import Plan, plan_processes
from proof.cluster.network import NODES, Network
from proof.cluster.processes import Process, start_time


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Process:
    monkeypatch.setattr("proof.cluster.processes.service_user", lambda: None)
    environment = {"PATH": os.environ["PATH"]}
    return Process("sleeper", ["sleep", "600"], environment, str(tmp_path / "log"))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    for node in NODES:
        (tmp_path / node).mkdir()
    return Plan(tmp_path, Network(7, False), "secret")


def test_a_killed_process_is_started_again_once(process: Process) -> None:
    process.start()
    first = process.pid
    process.start()
    assert process.pid == first
    process.kill()
    assert not process.is_running
    process.start()
    try:
        assert process.pid != first
    finally:
        process.kill()


def test_a_process_that_another_thread_starts_meanwhile_was_killed(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.start()
    first = process.pid
    assert first is not None
    child = processes._children[first]
    wait = child.wait

    def start_as_soon_as_it_has_ended(*given: float) -> int:
        code = wait(*given)
        process.start()
        return code

    monkeypatch.setattr(child, "wait", start_as_soon_as_it_has_ended)
    try:
        process.kill()
        assert start_time(first) is None
        assert process.is_running
    finally:
        process.kill()


def test_a_kill_that_ends_nothing_is_repeated(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.1)
    process.start()
    process.send(signal.SIGSTOP)
    kill_group = os.killpg
    sent: list[int] = []

    def lose_the_first(pid: int, which: int) -> None:
        sent.append(which)
        if len(sent) > 1:
            kill_group(pid, which)

    monkeypatch.setattr(os, "killpg", lose_the_first)
    process.kill()

    assert not process.is_running
    assert sent == [signal.SIGKILL] * 2


def test_a_process_with_the_same_id_and_another_start_time_is_left_alone(
    process: Process,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        assert start_time(other.pid) is not None
        process.pid, process.started = other.pid, 1

        assert not process.send(signal.SIGKILL)
        process.kill()

        assert other.poll() is None
        other.kill()


def test_an_ended_process_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as child:
        # Not waited for: a process that has ended and not been reaped has ended too.
        wait_until(lambda: start_time(child.pid) is None, what="the end of the child")


def test_every_node_has_a_service_and_an_address_of_its_own(plan: Plan) -> None:
    planned = plan_processes(plan)

    names = {process.name for process in planned}
    assert {f"patroni@{node}" for node in POSTGRES} < names
    assert {f"etcd@{node}" for node in ETCD} < names
    assert {f"rabbitmq@{node}" for node in RABBIT} < names
    assert {"haproxy@front", "pgbouncer@front"} < names
    assert len(names) == len(planned)
    assert len({plan.network.address(node) for node in NODES}) == len(NODES)
    settings = json.loads((plan.data("pg1") / "patroni.yml").read_text(encoding="utf-8"))
    # Its leader's key is written without a condition by the Patroni of Debian 12.
    assert "etcd3" not in settings
    dcs = settings["bootstrap"]["dcs"]
    assert dcs["synchronous_mode"]
    assert dcs["loop_wait"] + 2 * dcs["retry_timeout"] <= dcs["ttl"]


def test_a_cluster_is_found_again_by_its_folder(plan: Plan) -> None:
    planned = {process.name: process for process in plan_processes(plan)}
    Cluster(plan, planned, ["/mounted"]).save()

    found = Cluster.find(plan.folder)

    assert found is not None
    assert found.plan == plan
    assert found.processes == planned
    assert found.mounts == ["/mounted"]
    assert Cluster.find(plan.folder / "elsewhere") is None
