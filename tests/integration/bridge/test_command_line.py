"""`postroad bridge`: what it prints, what it changes, how it leaves."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from postroad.bridge import Addresses, BridgeSupervisor, DatabaseBridge
from postroad.bridge.metrics import BridgeCollector
from postroad.cli.bridge import bridge as group
from postroad.cli.main import main
from postroad.settings import BridgeSettings
from postroad.testing import wait_until, wait_until_async
from tests.chaos.bridge_load import Process
from tests.integration.bridge.conftest import Databases, depth, queue, run, taken


class Said(NamedTuple):
    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class TwoDatabases(NamedTuple):
    a: str
    b: str
    say: Callable[..., Said]


@pytest.fixture
def databases(
    one_version: Databases,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> TwoDatabases:
    a, b = one_version(2)
    queue(a)
    monkeypatch.setenv("POSTROAD_BRIDGE__DATABASES__DB_A", a)
    monkeypatch.setenv("POSTROAD_BRIDGE__DATABASES__DB_B", b)

    def say(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as leaving:
            main(["--database-url", a, "bridge", *arguments])
        captured = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return Said(leaving.value.code, captured.out, captured.err)

    return TwoDatabases(a, b, say)


def test_a_bridge_lives_on_the_command_line(databases: TwoDatabases) -> None:
    say = databases.say
    assert "no bridges" in say("list").error
    assert (
        "would be added" in say("add", "orders", "--from", "db_a", "--to", "db_b", "--dry-run").out
    )
    assert say("list", "--json").json == []
    made = say("add", "orders", "--from", "db_a", "--to", "db_b")
    assert "bridge orders added: db_a orders → db_b orders" in made.out
    assert say("add", "orders", "--from", "db_a", "--to", "db_b").code == 0
    # The same queue to another place gets the next name.
    second = say(
        "add", "orders", "--from", "home", "--to", "db_b", "--queue-at-target", "eu",
        "--selector", "(t.properties->'region')='eu'", "--json",
    )  # fmt: skip
    assert second.json["name"] == "orders_2"
    assert [each["name"] for each in say("list", "--json").json] == ["orders", "orders_2"]
    run(databases.a, "select mbus.post_orders('n=>1', null, 'region=>eu')")
    status = {each["name"]: each for each in say("status", "--json").json}
    assert (status["orders"]["lag"], status["orders_2"]["lag"]) == (1, 1)
    assert status["orders"]["problem"].startswith("no process runs it")
    asked = say("remove", "orders")
    assert asked.code != 0
    assert "1 messages were not carried yet" in asked.error
    assert [each["name"] for each in say("list", "--json").json] == ["orders", "orders_2"]
    assert "is paused (was running)" in say("pause", "orders_2").out
    assert say("resume", "orders_2", "--dry-run", "--json").json["was"] == "paused"
    assert say("resume", "orders_2", "--json").json["was"] == "paused"
    assert say("drain", "orders").code == 0
    assert "running" in say("run", "--seconds", "3").error
    assert [len(taken(databases.b, name)) for name in ("orders", "eu")] == [1, 1]
    assert "orders" in say("status").out
    wait_until(
        lambda: (
            say("status", "orders", "--json").json[0]["state"] == "drained"
            or say("run", "--seconds", "0.5")
        ),
        what="drained",
    )
    assert say("remove", "orders", "--json").json["messages_lost"] == 0
    assert [each["name"] for each in say("list", "--json").json] == ["orders_2"]


def test_what_goes_wrong_is_said_with_a_way_out(databases: TwoDatabases) -> None:
    unknown = databases.say("add", "orders", "--from", "db_a", "--to", "db_z")
    assert unknown.code == 2
    assert "POSTROAD_BRIDGE__DATABASES__DB_Z" in unknown.error
    assert databases.say("add", "nothing", "--from", "db_a", "--to", "db_b").code == 3
    assert databases.say("pause", "nothing").code == 3
    secret = databases.say("add", "orders", "--from", "home", "--to", "postgresql://u:geheim@h/d")
    assert secret.code == 2
    assert "geheim" not in secret.error + secret.out


def test_shards_are_listed_with_what_waits_in_them(
    databases: TwoDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "bridge.shards" in databases.say("shards", "list").error
    monkeypatch.setenv("POSTROAD_BRIDGE__SHARDS__ORDERS__DB_A", "2")
    monkeypatch.setenv("POSTROAD_BRIDGE__SHARDS__ORDERS__DB_B", "0")
    found = databases.say("shards", "list", "orders", "--json").json
    assert [(each["name"], each["weight"], each["depth"]) for each in found] == [
        ("db_a", 2, 0),
        ("db_b", 0, None),
    ]
    assert "the queue does not exist there" in databases.say("shards", "list").out


def test_every_command_has_an_example() -> None:
    def commands(group: click.Group) -> list[click.Command]:
        found: list[click.Command] = []
        for command in group.commands.values():
            found += commands(command) if isinstance(command, click.Group) else [command]
        return found

    assert [
        each.name for each in commands(group) if "Example: postroad" not in (each.help or "")
    ] == []


def test_bridges_of_the_settings_are_opened_and_measured(
    databases: TwoDatabases, tmp_path: Path
) -> None:
    settings = tmp_path / "postroad.toml"
    settings.write_text(
        "[bridge.bridges.eu]\n"
        'source = "home"\ntarget = "db_b"\nqueue = "orders"\nqueue_at_target = "orders_eu"\n'
        "selector = \"(t.properties->'region')='eu'\"\n",
        encoding="utf-8",
    )
    run(databases.a, "select mbus.post_orders('n=>0')")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with Process(
        "--database-url", databases.a, "--config-file", str(settings),
        "bridge", "run", "--metrics-port", port,
    ):  # fmt: skip

        def measured() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                    text = page.read().decode()
            except OSError:
                return ""
            return text if 'postroad_bridge_up{bridge="eu"' in text else ""

        page = wait_until(measured, what="metrics of the bridge")
        run(databases.a, "select mbus.post_orders('n=>1', null, 'region=>eu')")
        wait_until(lambda: depth(databases.b, "default", "orders_eu") == 1, what="it crossed")
    assert 'postroad_bridge_lag_messages{bridge="eu",source="home",target="db_b"} 0.0' in page


async def test_a_growing_lag_raises_an_alert_and_the_all_clear(one_version: Databases) -> None:
    a, b = one_version(2)
    queue(a)
    settings = BridgeSettings(lag_alert=timedelta(milliseconds=50))
    await DatabaseBridge("out", source=a, target=b, queue="orders").install()
    # Nobody carries: the target is where nothing listens.
    away = Addresses(a, {"there": f"{b} port=1"})
    run(a, "select bridge.register('out', 'database', 'home', 'there', 'orders', 'orders')")
    supervisor = BridgeSupervisor(
        away,
        settings,
        reload_interval=timedelta(milliseconds=100),
        watch=timedelta(milliseconds=100),
    )
    supervisor.signals.listen("lag")

    def reports() -> list[Any]:
        return run(a, "select is_raise, key from alerts.report order by id")

    async with supervisor:

        async def grow() -> bool:
            run(a, "select mbus.post_orders('n=>1')")
            return bool(supervisor.signals._listeners["lag"].qsize())

        await wait_until_async(grow, what="the lag is noticed")
        assert await supervisor.signals.wait("lag") == ("out", True)
        taken_away = await asyncio.to_thread(
            run, a, "select count(*) from mbus.consumen_orders_by_to_out(10000)"
        )
        assert taken_away[0][0] > 0
        assert await supervisor.signals.wait("lag") == ("out", False)
    assert reports() == [(True, "bridge/lag/out"), (False, "bridge/lag/out")]


def test_metrics_say_that_a_bridge_with_a_problem_is_not_up() -> None:
    from prometheus_client import CollectorRegistry

    from postroad.bridge.status import BridgeStatus

    registry = CollectorRegistry()
    seen = [
        BridgeStatus("one", "database", "a", "b", "q", "q", state="running", lag=5),
        BridgeStatus("two", "database", "a", "b", "q", "q", state="running", problem="away"),
    ]
    registry.register(BridgeCollector(lambda: seen))
    labels = {"source": "a", "target": "b"}
    assert registry.get_sample_value("postroad_bridge_up", {"bridge": "one", **labels}) == 1.0
    assert registry.get_sample_value("postroad_bridge_up", {"bridge": "two", **labels}) == 0.0
    assert (
        registry.get_sample_value("postroad_bridge_lag_messages", {"bridge": "one", **labels}) == 5
    )
