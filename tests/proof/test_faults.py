"""The fault driver: its proxy cuts where it says, schedules repeat, verdicts are right."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proof.cluster import POSTGRES, Cluster
from proof.cluster.configuration import Plan
from proof.cluster.network import Network
from proof.cluster.processes import Process
from proof.faults import run
from proof.faults.driver import Driver
from proof.faults.judge import judge
from proof.faults.kinds import KINDS
from proof.faults.proxy import Cut, CuttingProxy
from proof.faults.schedule import Entry, generate, load, save
from proof.history.record import History
from proof.options import Options

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))


@pytest.mark.parametrize(("side", "is_committed"), [("request", False), ("reply", True)])
def test_a_commit_is_cut_before_it_arrives_or_before_its_answer(
    database: str, side: Any, is_committed: bool
) -> None:
    place = conninfo_to_dict(database)
    socket = f"{place['host']}/.s.PGSQL.{place['port']}"
    with psycopg.connect(database, autocommit=True) as control:
        control.execute("create table done (n integer)")
        with CuttingProxy("127.0.0.1", socket) as proxy:
            through = {**place, "host": "127.0.0.1", "port": proxy.port}
            connection = psycopg.connect(make_conninfo("", **through))
            connection.execute("insert into done values (1)")
            proxy.arm(Cut(side))
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
            assert (proxy.cuts, proxy.is_armed) == (1, False)
            # One cut only: the next connection is whole.
            with psycopg.connect(make_conninfo("", **through)) as after:
                after.execute("select 1")
        rows = control.execute("select n from done").fetchall()
    assert rows == ([(1,)] if is_committed else [])


def test_the_same_seed_gives_the_same_schedule_with_every_kind_first() -> None:
    kinds = list(KINDS.values())
    first, again = (list(itertools.islice(generate(7, kinds), 2 * len(kinds))) for _ in range(2))
    assert first == again
    assert {entry.kind for entry in first[: len(kinds)]} == KINDS.keys()
    assert first != list(itertools.islice(generate(8, kinds), 2 * len(kinds)))


def test_there_are_more_than_twelve_kinds_and_each_is_described() -> None:
    assert len(KINDS) >= 12
    assert all(kind.meaning for kind in KINDS.values())


def test_a_schedule_is_read_back_and_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    entries = [Entry("kill_primary", 2.0, 1.0, 5)]
    save(file, entries)
    assert load(file) == entries
    save(file, [Entry("bad_luck", 2.0, 1.0, 5)])
    with pytest.raises(ValueError, match="bad_luck"):
        load(file)


class Record:
    """A small history: posts to `later`, one of them lost, and rows of the outbox."""

    def __init__(self) -> None:
        self.history = History()
        self._number = 0

    def note(self, operation: str, **fields: Any) -> None:
        self._add(operation, "note", **fields)

    def _add(self, operation: str, phase: str, **fields: Any) -> None:
        self._number += 1
        event = {"time": fields.pop("time", 1.0), "client": "c", "call": self._number}
        self.history.add(iter([{**event, "phase": phase, "operation": operation, **fields}]))

    def post(self, key: str, at: float, queue: str = "later") -> None:
        self._number += 1
        message = {"key": key, "delayed_until": at}
        event = {"client": "c", "call": self._number, "operation": "post"}
        invoked = {"time": at, "phase": "invoke", "queue": queue, "messages": [message]}
        answered = {"time": at, "phase": "ok", "iids": [f"{queue}.{key}@x"]}
        self.history.add(iter([{**event, **invoked}, {**event, **answered}]))

    def effect(self, key: str, at: float, queue: str = "later") -> None:
        row = {"number": self._number, "queue": queue, "consumer": "default", "key": key}
        self.note("effect", **row, iid=f"{queue}.{key}@x", at=at, began=at, handled=at)

    def lease_and_ack(self, key: str, at: float, token: int) -> None:
        iid = f"leases.{key}@x"
        held = {"iid": iid, "key": key, "token": token, "leased_until": 1e9}
        for operation, later, given, answer in (
            ("lease", 0.0, {}, {"messages": [held]}),
            ("ack", 0.2, {"iid": iid, "token": token}, {}),
        ):
            self._number += 1
            event = {"client": "c", "call": self._number, "operation": operation}
            invoked = {"time": at + later, "phase": "invoke", "queue": "leases", **given}
            answered = {"time": at + later + 0.1, "phase": "ok", **answer}
            self.history.add(iter([{**event, **invoked}, {**event, **answered}]))

    def fault(self, kind: str, began: float, ended: float) -> None:
        self.note("fault", kind=kind, target="pg1", began=began, ended=ended)


def test_a_loss_is_a_violation_where_commits_wait_for_a_standby() -> None:
    record = Record()
    record.post("a", 10)
    record.effect("a", 11)
    assert judge(record.history, is_synchronous=True).violations == []
    record.post("b", 20)
    [violation] = judge(record.history, is_synchronous=True).violations
    assert "never got b" in violation


def test_an_asynchronous_loss_needs_a_failover_at_that_time() -> None:
    record = Record()
    record.fault("kill_primary", 100, 105)
    record.note("promotion", target="pg2", at=108)
    record.post("lost", 99.5)
    verdict = judge(record.history, is_synchronous=False)
    assert (len(verdict.lost), verdict.violations) == (1, [])
    record.post("early", 50)
    record.fault("lost_reply", 49, 51)
    # It could have made another node lead, and did not.
    record.fault("kill_backends", 49, 51)
    [violation] = judge(record.history, is_synchronous=False).violations
    assert "never got early, acknowledged, and there was no failover" in violation


@pytest.mark.parametrize("is_synchronous", [False, True])
def test_an_ack_under_two_tokens_needs_a_failover_of_asynchronous_replication(
    is_synchronous: bool,
) -> None:
    record = Record()
    record.post("a", 90, queue="leases")
    record.note("handled", queue="leases", key="a")
    record.lease_and_ack("a", 104, token=1)
    record.lease_and_ack("a", 120, token=2)
    texts = judge(record.history, is_synchronous=is_synchronous).violations
    assert any("acked under two tokens" in each for each in texts)

    record.fault("kill_patroni", 100, 106)
    record.note("promotion", target="pg2", at=103)
    verdict = judge(record.history, is_synchronous=is_synchronous)
    assert bool(verdict.violations) == is_synchronous
    assert len(verdict.lost) == 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    monkeypatch.setattr("proof.cluster.processes.service_user", lambda: None)
    environment = {"PATH": os.environ["PATH"]}
    processes = {
        f"patroni@{node}": Process(f"patroni@{node}", ["sleep", "60"], environment, os.devnull)
        for node in POSTGRES
    }
    plan = Plan(tmp_path, Network(7, False), "secret")
    with CuttingProxy("127.0.0.1", str(tmp_path / "nowhere")) as proxy:
        driver = Driver(Cluster(plan, processes, []), tmp_path, proxy, 1, 1.0)
        yield driver
        for process in processes.values():
            process.kill()
        driver.recorder.close()


def test_what_a_fault_holds_down_is_started_by_no_other_lane(driver: Driver) -> None:
    held = driver.cluster.processes["patroni@pg1"]
    driver.restart_services()
    release = driver.hold_down(held.name)

    driver.restart_services()
    assert not held.is_running
    release()
    assert held.is_running


def test_promotions_are_read_from_the_logs_of_patroni(driver: Driver, tmp_path: Path) -> None:
    process = driver.cluster.processes["patroni@pg2"]
    process.log = str(tmp_path / "log")
    Path(process.log).write_text(
        "2026-11-20 00:06:50,001 INFO: no action. I am (pg2), a secondary\n"
        "2026-11-20 00:06:52,453 INFO: promoted self to leader by acquiring session lock\n"
        "2026-11-20 00:09:00,000 INFO: promoted self to leader because I had the session lock\n",
        encoding="utf-8",
    )

    driver.record_promotions()

    [note] = History.read(tmp_path / "history").notes
    moment = datetime(2026, 11, 20, 0, 6, 52, 453000).astimezone()
    assert (note.operation, note.fields) == (
        "promotion",
        {"target": "pg2", "at": moment.timestamp()},
    )


def test_a_row_without_its_message_is_found_and_the_reverse() -> None:
    record = Record()
    record.note("outbox", key="a")
    record.effect("b", 10, queue="outbox")
    found = " ".join(judge(record.history, is_synchronous=True).violations)
    assert "the row a exists without its message" in found
    assert "the message b exists without its row" in found


# Its network interfaces come and go, and Chromium ends the connections of pages each time.
@pytest.mark.skipif(not IS_STRESS, reason="only alone, by make stress")
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_few_faults_on_a_cluster_break_no_promise(tmp_path: Path) -> None:
    missing = [name for name in ("patroni", "etcd", "haproxy", "pgbouncer") if not _has(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    options = Options(
        seconds=20.0,
        scratch=tmp_path,
        arguments=("--synchronous", "kill_primary", "lost_commit_reply", "kill_client"),
    )
    report = run(options)
    assert report.violations == ()
    assert int(dict(report.facts)["synchronous: operations"].replace(",", "")) > 0


def _has(program: str) -> bool:
    return (
        shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin") is not None
    )
