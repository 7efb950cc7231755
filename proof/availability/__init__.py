"""The page docs/operate/high-availability.md, executed against a cluster.

Each claim quotes a sentence of the page; a claim whose sentence the page no longer has fails, so
that page and proof change together. The settings of the page are taken from it, not copied.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import amqp
import psycopg
import yaml  # type: ignore[import-untyped]
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroad.bus import Bus, BusError, Worker
from postroad.postgres.errors import DatabaseUnavailable
from proof.cluster import POSTGRES, RABBIT, Cluster
from proof.cluster.processes import wait_for
from proof.faults.proxy import SYNC, Cut, CuttingProxy
from proof.options import ROOT, Options
from proof.report import Report, Table

__all__ = ["run"]

PAGE = ROOT / "docs" / "operate" / "high-availability.md"
LOST = (psycopg.Error, BusError, DatabaseUnavailable, OSError)
MESSAGES = 300


class Reader:
    """Somebody who does what the page says, and notes what happened."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.text = PAGE.read_text(encoding="utf-8")
        self.rows: list[tuple[str, str]] = []
        self.violations: list[str] = []
        settings = tomllib.loads(self.block("toml"))
        network = cluster.plan.network
        dsn = settings["database_url"]
        for node in POSTGRES:
            dsn = dsn.replace(node, network.address(node))
        # The page names a user and no password; this cluster has one user.
        self.dsn = make_conninfo(dsn, user="postgres", password=cluster.plan.password)
        brokers = ";".join(
            f"amqp://postroad:{cluster.plan.password}@{network.address(node)}:5672/"
            for node in RABBIT
        )
        self.file = folder / "postroad.toml"
        self.file.write_text(
            f'database_url = "{self.dsn}"\n[bridge.brokers]\nrabbit = "{brokers}"\n',
            encoding="utf-8",
        )

    def block(self, language: str) -> str:
        """Return the first block of the page in this language."""
        found = re.search(rf"```{language}\n(.*?)```", self.text, re.DOTALL)
        assert found is not None, f"the page has no {language} block"
        return found[1]

    @contextmanager
    def claim(self, sentence: str) -> Iterator[list[str]]:
        """Try a claim; the block appends what it saw."""
        seen: list[str] = []
        if " ".join(sentence.split()) not in " ".join(self.text.split()):
            self.violations.append(f"{sentence}: the page does not say this any more")
        try:
            yield seen
        except (
            AssertionError,
            TimeoutError,
            OSError,
            subprocess.SubprocessError,
            *LOST,
        ) as failure:
            seen.append(f"failed: {failure}")
            self.violations.append(f"{sentence}: {failure!r}")
        self.rows.append((sentence, "; ".join(seen)))
        sys.stdout.write(f"  {sentence}\n    {'; '.join(seen)}\n")
        sys.stdout.flush()

    def command(self, *words: str, file: Path | None = None) -> str:
        """Run `postroad` with the page's settings."""
        done = subprocess.run(
            [*_POSTROAD, "--config-file", str(file or self.file), *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"postroad {' '.join(words)}: {done.stdout} {done.stderr}"
        return done.stdout


_POSTROAD = (str(Path(sys.executable).with_name("postroad")),)


def run(options: Options) -> Report:
    """Start a cluster with RabbitMQ and go through the page."""
    folder = options.scratch / "availability"
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster.start(Path(f"/tmp/postroad-availability-{time.time_ns()}"))
    try:
        reader = Reader(cluster, folder)
        reader.command("db", "install")
        for check in (
            _settings_of_patroni,
            _first_failover,
            _switchover,
            _standby_fails,
            _broken_commit,
            _front,
            _rabbit,
        ):
            check(reader)
            cluster.restart_ended()
            cluster.wait_ready()
    except BaseException as failure:
        failure.add_note(cluster.log_ends())
        raise
    finally:
        cluster.stop()
    return Report(
        title="High availability, executed",
        introduction=(
            "The page [High availability](../operate/high-availability.md), sentence by sentence,"
            " against PostgreSQL x 3 under Patroni and RabbitMQ x 3 on this machine. Its settings"
            " are read from the page."
        ),
        facts=(
            ("claims", str(len(reader.rows))),
            ("nodes", "namespaces" if cluster.plan.network.has_namespaces else "loopback"),
        ),
        tables=(Table("Claims", ("claim", "what was seen"), tuple(reader.rows)),),
        violations=tuple(reader.violations),
        limits=(
            "Patroni's watchdog needs a device that this machine may not have, and is off.",
            "Standby conflicts, federation and shovel are not tried here.",
        ),
    )


def _settings_of_patroni(reader: Reader) -> None:
    with reader.claim("Settings that matter:") as seen:
        wanted = yaml.safe_load(reader.block("yaml"))["bootstrap"]["dcs"]
        leader = reader.cluster.leader()
        assert leader is not None
        address = reader.cluster.plan.network.address(leader)
        with urllib.request.urlopen(f"http://{address}:8008/config", timeout=5) as answer:
            there = json.load(answer)
        parameters = wanted.pop("postgresql")["parameters"]
        for name, value in parameters.items():
            assert there["postgresql"]["parameters"][name] == value, name
        for name, value in wanted.items():
            assert there[name] == value, f"{name} is {there[name]}"
        seen.append(f"the cluster runs with {len(parameters) + len(wanted)} of them")
    with reader.claim("Patroni keeps synchronous_standby_names right") as seen:
        with psycopg.connect(reader.dsn) as connection:
            row = connection.execute("show synchronous_standby_names").fetchone()
        assert row is not None
        assert row[0] in POSTGRES, row
        seen.append(f"it is {row[0]}")


class _Load:
    """A poster and a worker of the product, by the page's DSN."""

    def __init__(self, dsn: str, queue: str) -> None:
        self._dsn = dsn
        self._queue = queue
        self._stop = threading.Event()
        self._posting = threading.Thread(target=self._post)
        self.acknowledged: dict[str, float] = {}
        self.worker = Worker(dsn)

        @self.worker.handler(queue)
        def work(message: Any, connection: Any) -> None:
            connection.execute("insert into handled values (%s, %s)", (queue, message.data["key"]))

    def __enter__(self) -> _Load:
        with Bus(self._dsn) as bus:
            bus.create_queue(self._queue, payload="jsonb")
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("create table if not exists handled (queue text, key text)")
        self.worker.start()
        self._posting.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._posting.join()
        self.worker.stop()

    def _post(self) -> None:
        with Bus(self._dsn) as bus:
            number = 0
            while not self._stop.wait(0.01):
                number += 1
                try:
                    bus.post(self._queue, {"key": str(number)})
                except LOST:
                    continue
                self.acknowledged[str(number)] = time.monotonic()

    def wait_for_more(self, count: int = 50) -> None:
        """Wait until so many more posts were acknowledged."""
        until = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= until, f"{count} more posts", 120)

    def finish(self) -> str:
        """Stop posting, wait until everything is handled, and return what was seen."""
        self._stop.set()
        self._posting.join()
        moments = sorted(self.acknowledged.values())
        gap = max(after - before for before, after in pairwise(moments))

        def missing() -> int:
            with psycopg.connect(self._dsn) as connection:
                rows = connection.execute(
                    "select key from handled where queue = %s", (self._queue,)
                ).fetchall()
            keys = [key for (key,) in rows]
            assert len(keys) == len(set(keys)), "a message was handled twice"
            return len(self.acknowledged.keys() - set(keys))

        wait_for(lambda: missing() == 0, "every acknowledged message handled", 60)
        assert self.worker.is_running
        return f"{len(moments)} acknowledged, 0 lost, longest pause {gap:.1f} s"


def _first_failover(reader: Reader) -> None:
    cluster = reader.cluster
    sentence = (
        "When the primary fails, each of them loses its connection, reconnects with backoff (at"
        " most 5 s) and reaches the promoted server."
    )
    with reader.claim(sentence) as seen, _Load(reader.dsn, "failover") as load:
        before = cluster.leader()
        assert before is not None
        # With its Patroni, which would start it again in its place.
        cluster.processes[f"patroni@{before}"].kill()
        pid = cluster.postmaster(before)
        assert pid is not None
        subprocess.run(["kill", "-9", str(pid)], check=True)
        wait_for(lambda: cluster.leader() not in (None, before), "a promotion", 90)
        load.wait_for_more()
        seen.append(f"{before} killed, {cluster.leader()} promoted")
        seen.append(load.finish())


def _switchover(reader: Reader) -> None:
    cluster = reader.cluster
    with reader.claim("Nothing has to be restarted.") as seen, _Load(reader.dsn, "planned") as load:
        before = cluster.leader()
        assert before is not None
        names = [each["name"] for each in cluster.members() if each["role"] == "sync_standby"]
        cluster.ask_patroni(before, "switchover", {"leader": before, "candidate": names[0]})
        wait_for(lambda: cluster.leader() == names[0], "the switchover", 60)
        load.wait_for_more()
        seen.append(f"switchover from {before} to {names[0]}")
        seen.append(load.finish())
    with reader.claim("After a switchover run `postroad doctor`.") as seen:
        reader.command("doctor")
        seen.append("exit code 0")


def _standby_fails(reader: Reader) -> None:
    cluster = reader.cluster
    sentence = "With one synchronous standby, commits stop when the *standby* fails. Use two"
    with reader.claim(sentence) as seen, _Load(reader.dsn, "standby") as load:
        names = [each["name"] for each in cluster.members() if each["role"] == "sync_standby"]
        cluster.processes[f"patroni@{names[0]}"].kill()
        pid = cluster.postmaster(names[0])
        assert pid is not None
        subprocess.run(["kill", "-9", str(pid)], check=True)
        wait_for(
            lambda: any(
                each["role"] == "sync_standby" and each["name"] != names[0]
                for each in cluster.members()
            ),
            "the second standby in its place",
            90,
        )
        load.wait_for_more()
        seen.append(f"{names[0]} killed, commits continue with the second standby")
        seen.append(load.finish())


def _broken_commit(reader: Reader) -> None:
    network = reader.cluster.plan.network
    sentence = "Post it again with the same `dedup_key`, and it is posted once."
    with reader.claim(sentence) as seen:
        front = (network.address("front"), 5000)
        with CuttingProxy(network.host_address, front) as proxy, Bus(reader.dsn) as direct:
            direct.create_queue("broken", payload="jsonb")
            place = conninfo_to_dict(reader.cluster.dsn("haproxy"))
            dsn = make_conninfo("", **{**place, "host": network.host_address, "port": proxy.port})
            for number in range(20):
                with Bus(dsn, listen=False) as bus:
                    bus.consume("broken", amount=0)
                    proxy.arm(Cut("request" if number % 2 else "reply", SYNC))
                    headers = {"dedup_key": str(number)}
                    try:
                        bus.post("broken", {"n": number}, headers=headers)
                    except LOST:
                        bus.post("broken", {"n": number}, headers=headers)
            found = [message.data["n"] for message in direct.consume("broken", amount=100)]
            assert found == list(range(20)), found
            seen.append(f"{proxy.cuts} of 20 posts cut and repeated, 20 messages")


def _front(reader: Reader) -> None:
    sentence = "With HAProxy, use the port that checks `/primary`, and a DSN with that one host."
    with reader.claim(sentence) as seen:
        with Bus(reader.cluster.dsn("haproxy")) as bus:
            bus.create_queue("front", payload="jsonb")
            for number in range(50):
                bus.post("front", {"n": number})
            assert len(bus.consume("front", amount=100)) == 50
        seen.append("50 messages posted and consumed")
    with reader.claim(
        "With a transaction-mode pooler in between, set `database.is_pooled = true`"
    ) as seen:
        file = reader.file.with_name("pooled.toml")
        file.write_text(
            f'database_url = "{reader.cluster.dsn("pooled")}"\n[database]\nis_pooled = true\n',
            encoding="utf-8",
        )
        reader.command("bus", "post", "front", '{"n": 1}', file=file)
        assert '"n": 1' in reader.command("bus", "consume", "front", file=file)
        seen.append("a message posted and consumed through PgBouncer")


def _rabbit(reader: Reader) -> None:
    cluster = reader.cluster
    with reader.claim("Set `cluster_partition_handling = pause_minority`") as seen:
        answer = cluster.rabbit_control(
            RABBIT[0], "eval", "application:get_env(rabbit, cluster_partition_handling)."
        )
        assert "pause_minority" in answer, answer
        seen.append(answer.strip())
    sentence = (
        "When it loses the connection it reconnects with backoff, declares exchange, queue and"
        " binding again, and sends unconfirmed messages again."
    )
    with reader.claim(sentence) as seen, Bus(reader.dsn) as bus:
        bus.create_queue("bridged", payload="jsonb")
        reader.command("bridge", "add", "bridged", "--from", "home", "--to", "rabbit")
        command = [*_POSTROAD, "--config-file", str(reader.file), "bridge", "run"]
        log = reader.file.with_name("bridge.log").open("wb")
        with log, subprocess.Popen(command, stdout=log, stderr=log) as bridge:
            try:
                iids = [bus.post("bridged", {"n": number}) for number in range(MESSAGES)]
                wait_for(lambda: _waiting(bus) == 0, "the first messages in RabbitMQ", 120)
                with reader.claim(
                    "**quorum queues** (the default of `postroad bridge add`)"
                ) as kind:
                    listed = cluster.rabbit_control(RABBIT[0], "list_queues", "name", "type")
                    assert re.search(r"bridged\s+quorum", listed), listed
                    kind.append("rabbitmqctl shows type quorum")
                # The first address of the broker: the bridge is connected to it.
                cluster.processes[f"rabbitmq@{RABBIT[0]}"].kill()
                iids += [bus.post("bridged", {"n": number}) for number in range(MESSAGES)]
                wait_for(lambda: _waiting(bus) == 0, "the others by another node", 120)
            finally:
                bridge.send_signal(signal.SIGTERM)
                bridge.wait(60)
        got = _received(cluster, RABBIT[1], "bridged")
        assert set(got) == set(iids), f"{len(set(iids) - set(got))} messages are missing"
        seen.append(
            f"{RABBIT[0]} killed: {len(iids)} messages arrived, {len(got) - len(iids)} twice"
        )


def _waiting(bus: Bus) -> int:
    return sum(status.depth for status in bus.status("bridged") if status.consumer != "default")


def _received(cluster: Cluster, node: str, queue: str) -> list[str]:
    """Take every message of a RabbitMQ queue; return their ids."""
    found: list[str] = []
    with amqp.Connection(
        f"{cluster.plan.network.address(node)}:5672", "postroad", cluster.plan.password
    ) as connection:
        channel = connection.channel()
        while (message := channel.basic_get(queue)) is not None:
            found.append(message.properties["message_id"])
            channel.basic_ack(message.delivery_tag)
    return found
