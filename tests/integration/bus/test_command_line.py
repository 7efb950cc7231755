"""`postroad bus`: what it prints, what it changes, how it leaves."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import pytest

from postroad.bus import Bus
from postroad.bus.resources import MESSAGES
from postroad.cli.bus import bus as group
from postroad.cli.main import main


class Said(NamedTuple):
    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as leaving:
            main(["--database-url", database, "bus", *arguments])
        captured = capsys.readouterr()
        code = leaving.value.code
        assert isinstance(code, int)
        return Said(code, captured.out, captured.err)

    return call


def test_a_queue_lives_on_the_command_line(run):
    assert run("create", "orders", "--payload", "jsonb").out == "queue orders created\n"
    assert "orders" in run("queues").out
    assert run("queues", "--json").json[0]["payload"] == "jsonb"
    assert run("create", "orders", "audit").code == 0
    assert {each["consumer"] for each in run("consumers", "orders", "--json").json} == {
        "audit",
        "default",
    }
    iid = run("post", "orders", '{"n": 1}', "--property", "STATE=DONE").out.strip()
    assert run("peek", "orders").out == "yes\n"
    assert run("peek", "orders", iid, "--json").json["is_there"]
    [message] = run("consume", "orders", "--json").json
    assert (message["iid"], message["data"]) == (iid, {"n": 1})
    assert message["properties"] == {"STATE": "DONE"}
    assert run("status", "orders", "--json").json[0]["queue"] == "orders"
    assert run("status", "orders", "--json").json[0]["blocked"] == 0
    shown = run("take", iid, "--consumer", "audit")
    assert iid in shown.out
    assert run("take", iid).code == 3
    assert run("peek", "orders").code == 3
    assert run("drop", "orders", "audit").code == 0
    assert run("drop", "orders", "--json").json["messages_lost"] == 0
    assert run("queues").error == "there are no queues\n"


def test_a_dry_run_changes_nothing(run):
    assert "would be created" in run("create", "orders", "--payload", "text", "--dry-run").out
    assert run("queues", "--json").json == []
    run("create", "orders", "--payload", "text")
    assert run("post", "orders", "x", "--dry-run").out == "1 would be posted\n"
    assert run("peek", "orders").code == 3
    iid = run("post", "orders", "x").out.strip()
    assert run("consume", "orders", "--dry-run", "--json").json[0]["data"] == "x"
    assert run("take", iid, "--dry-run").code == 0
    assert "would be dropped" in run("drop", "orders", "--dry-run").out
    assert run("peek", "orders").code == 0


def test_lines_are_posted_in_order(run, tmp_path):
    run("create", "orders", "--payload", "text")
    path = tmp_path / "lines"
    path.write_text("a\nb\nc\n", encoding="utf-8")
    assert len(run("post", "orders", "--lines", str(path), "--json").json["iids"]) == 3
    consumed = run("consume", "orders", "--amount", "9", "--json").json
    assert [message["data"] for message in consumed] == ["a", "b", "c"]


def test_dead_messages_are_shown_and_brought_back(run, database):
    run("create", "orders", "--payload", "text")
    run("post", "orders", "x", "--header", "kind=test")
    with Bus(database) as bus:
        [message] = bus.lease("orders")
        bus.nack(message, error="it broke", park=True)
    assert "it broke" in run("dmq").out
    [dead] = run("dmq", "orders", "--json").json
    assert (dead["data"], dead["properties"], dead["attempts"]) == ("x", {}, 1)
    assert dead["headers"]["kind"] == "test"
    assert run("dmq", "orders", "--search", "it worked", "--json").json == []
    assert run("redrive", "orders", "--dry-run").out == "1 would be redriven\n"
    assert run("redrive", "orders").out == "1 is redriven\n"
    assert run("consume", "orders", "--json").json[0]["data"] == "x"


def test_a_queue_is_paused_and_resumed(run):
    run("create", "orders", "--payload", "text")
    run("post", "orders", "x")
    assert run("pause", "orders", "--dry-run").out == "queue orders would be paused\n"
    assert run("consume", "orders", "--json").json != []
    run("post", "orders", "y")
    paused = ("pause", "orders", "--consumer", "default", "--reason", "the ERP is down")
    assert run(*paused).out == "queue orders is paused\n"
    assert run(*paused).out == "queue orders was already paused\n"
    assert run("consume", "orders", "--json").json == []
    [shown] = run("status", "orders", "--json").json
    assert (shown["state"], shown["pause_reason"]) == ("paused", "the ERP is down")
    assert shown["paused_by"].endswith("(command line)")
    assert "the ERP is down" in run("consumers", "orders").out
    assert run("resume", "orders").out == "queue orders was not paused\n"
    assert run("resume", "orders", "--consumer", "default").code == 0
    assert run("consume", "orders", "--json").json[0]["data"] == "y"


def test_schedules_are_added_run_paused_and_removed(run):
    run("create", "orders", "--payload", "jsonb")
    add = ("schedules", "add", "nightly", "0 3 * * *", "orders", '{"n": 1}')
    said = run(*add, "--timezone", "Europe/Moscow", "--missed", "skip")
    assert said.out == "schedule nightly is created\n"
    [shown] = run("schedules", "--json").json
    assert (shown["timing"], shown["state"], shown["missed"]) == ("0 3 * * *", "active", "skip")
    assert "is posted" in run("schedules", "run-now", "nightly").out
    assert run("consume", "orders", "--json").json[0]["data"] == {"n": 1}
    [ran] = run("schedules", "show", "nightly", "--json").json["runs"]
    assert ran["outcome"] == "posted"
    assert "posted" in run("schedules", "show", "nightly").out
    paused = ("schedules", "pause", "nightly", "--reason", "closing")
    assert run(*paused).out == "schedule nightly is paused\n"
    assert run("schedules", "list", "--state", "paused", "--json").json[0]["next_at"] is None
    assert run("schedules", "resume", "nightly").out == "schedule nightly is resumed\n"
    assert run("schedules", "remove", "nightly").out == "schedule nightly is removed\n"
    assert run("schedules", "remove", "nightly").out == "there was no schedule nightly\n"
    assert run("schedules", "run-now", "nightly").code == 3
    assert run("schedules", "add", "x", "every day", "orders", "{}").code == 2


def test_tail_prints_and_consumes(run):
    run("create", "orders", "--payload", "jsonb")
    run("post", "orders", '{"n": 1}')
    run("post", "orders", '{"n": 2}')
    said = run("tail", "orders", "default", "--count", "2", "--json")
    assert [json.loads(line)["data"]["n"] for line in said.out.splitlines()] == [1, 2]
    assert run("peek", "orders").code == 3


def test_maintenance_can_be_run_by_hand(run):
    run("create", "orders")
    assert run("maintain").code == 0
    assert run("maintain", "orders", "--json").code == 0
    assert run("maintain", "orders", "--every", "1s").code == 2


def test_messages_are_not_dropped_by_mistake(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    run("create", "orders", "--payload", "text")
    run("post", "orders", "x")
    assert run("drop", "orders").code == 130
    assert run("peek", "orders").code == 0
    assert run("drop", "orders", "--yes").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("consume", "nothing"), 3, "nothing"),
        (("post", "nothing", "{}"), 3, "nothing"),
        (("tail", "nothing", "default"), 3, "nothing"),
        (("status", "nothing"), 3, "nothing"),
        (("dmq", "nothing"), 3, "nothing"),
        (("consumers", "nothing"), 3, "postroad bus queues"),
        (("create", "Bad-Name"), 2, "Bad-Name"),
        (("create", "orders", "--selector", "true"), 2, "consumer"),
        (("post", "orders"), 2, "DATA"),
        (("post", "orders", "{", "--delay", "5"), 2, "unit"),
        (("post", "orders", "{}", "--header", "x"), 2, "name=value"),
        (("take", "nonsense"), 2, "nonsense"),
    ],
)
def test_mistakes_are_sentences_with_exit_codes(run, arguments, code, complaint):
    said = run(*arguments)
    assert said.code == code
    assert complaint in said.error
    assert "Traceback" not in said.error


def test_what_is_not_json_is_explained(run):
    run("create", "orders", "--payload", "jsonb")
    said = run("post", "orders", "{number")
    assert said.code == 2
    assert "not valid JSON" in said.error


def test_every_command_has_an_example_and_json():
    for name, command in group.commands.items():
        assert "Example: postroad bus " + name in (command.help or ""), name
        options = {option for each in command.params for option in each.opts}
        # This document is JSON in any case.
        assert "--json" in options or name == "asyncapi", name
        assert isinstance(command, click.Command)
    changing = {"create", "drop", "post", "consume", "take", "redrive", "pause", "resume"}
    for name in changing:
        assert "--dry-run" in {o for each in group.commands[name].params for o in each.opts}


def test_messages_are_listed_page_by_page_without_being_taken(run, database):
    run("create", "orders", "--payload", "jsonb")
    iids = [run("post", "orders", f'{{"n": {n}}}').out.strip() for n in range(5)]
    first = run("messages", "orders", "--limit", "2", "--json")
    assert [one["iid"] for one in first.json] == iids[:2]
    cursor = first.error.split()[-1]
    rest = run("messages", "orders", "--after", cursor, "--json").json
    assert [one["iid"] for one in rest] == iids[2:]
    assert [one["iid"] for one in run("messages", "orders", "--descending", "--json").json] == [
        *reversed(iids)
    ]
    [found] = run("messages", "orders", "--search", '"n": 3', "--json").json
    assert (found["iid"], found["data"]) == (iids[3], '{"n": 3}')
    assert found.keys() == {column.name for column in MESSAGES.columns}
    with Bus(database) as bus:
        [leased] = bus.lease("orders", "default")
    [shown] = run("messages", "orders", "--state", "leased", "--json").json
    assert shown["iid"] == leased.iid
    assert shown["leased_until"] is not None
    assert shown["due_at"] is None
    assert iids[4] in run("messages", "orders").out


def test_messages_are_those_of_a_queue_that_there_is(run):
    assert run("messages").code == 2
    assert run("messages", "absent").code == 3
    run("create", "orders")
    assert run("messages", "orders", "--consumer", "absent").code == 3
    assert run("messages", "orders", "--after", "x").code == 2


def test_replays_from_the_earliest_message_are_listed(run, database):
    run("create", "orders", "--payload", "jsonb")
    run("retain", "orders", "--period", "7d")
    run("post", "orders", '{"n": 1}')
    run("consume", "orders")
    started = run("replay", "orders", "--json").json
    [listed] = run("replays", "list", "--json").json
    assert (listed["id"], listed["since"]) == (started["replay"], None)
    assert "orders" in run("replays", "list").out
    with Bus(database) as bus:
        assert bus.replays()[0].since is None
