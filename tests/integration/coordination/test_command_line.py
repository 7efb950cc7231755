"""`postroad coordination`, as people and scripts call it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postroad.cli.main import cli
from postroad.testing import TestServer
from tests.integration.coordination.lab import Lab, open_lab


@pytest.fixture
def call(newest_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Any]]:
    with open_lab(newest_server, "lists") as lab:
        yield lab, _runner(lab, monkeypatch)


def _runner(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    for part, name in (("writer", "WRITER"), ("coordinator", "COORDINATOR"), ("lists", "READER")):
        monkeypatch.setenv(f"POSTROAD_COORDINATION__{name}_URL", lab.dsns[part])

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["coordination", *arguments])

    return run


def test_events_are_listed_shown_cancelled_and_tried_again(call: tuple[Lab, Any]) -> None:
    lab, run = call
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(5)')
    fine = lab.write('insert into "DummyItem" ("Id", "Name") values (1, \'fine\')')
    parked = lab.write('insert into "DummyItem" ("Id", "Name") values (2, \'much too long\')')
    lab.settle()

    listed = run("events", "--json")
    assert [(each["event_id"], each["state"]) for each in json.loads(listed.output)] == [
        (parked, "Processing"),
        (fine, "Committed"),
    ]
    assert "Committed" in run("events").output
    assert [e["event_id"] for e in json.loads(run("events", "--unfinished", "--json").output)] == [
        parked
    ]
    shown = run("show", str(parked))
    assert "lists" in shown.output
    assert "0/1" in shown.output or "1/1" in shown.output
    assert "too long for type" in shown.output
    detail = json.loads(run("show", str(parked), "--json").output)
    assert detail["timeline"][0]["state"] == "Created"
    assert detail["event"]["event_id"] == parked

    readers = json.loads(run("readers", "--json").output)
    assert [(each["reader"], each["parked"]) for each in readers] == [("lists", 1)]

    dry = run("cancel", str(parked), "--dry-run")
    assert "would be cancelled" in dry.output
    assert lab.value("coordinator", "select count(*) from coordination.decision") == 0
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(50)')
    assert run("retry", str(parked), "--reader", "lists").exit_code == 0
    lab.collect_decisions()
    lab.settle()
    assert lab.state(parked) == "Committed"
    refused = run("cancel", str(parked))
    assert refused.exit_code != 0
    assert "committed" in str(refused.exception)
    assert run("voter", "lists", "--no-voter").exit_code == 0
    assert lab.value("coordinator", "select is_voter from coordination.reader") is False


def test_options_that_an_action_needs_are_asked_for(call: tuple[Lab, Any]) -> None:
    lab, run = call
    for arguments in (("voter", "lists"), ("skip", "1")):
        refused = run(*arguments)
        assert (refused.exit_code, "Missing option" in refused.output) == (2, True)
    assert lab.value("coordinator", "select is_voter from coordination.reader") is True


def test_json_of_an_action_names_all_its_arguments(call: tuple[Lab, Any]) -> None:
    lab, run = call
    event = lab.write('insert into "DummyItem" ("Id", "Name") values (1, \'fine\')')
    lab.settle()
    assert json.loads(run("retry", str(event), "--json").output) == {
        "status": "OK",
        "event_id": event,
        "reader": None,
        "is_dry_run": False,
    }


def test_a_parked_event_can_be_skipped(call: tuple[Lab, Any]) -> None:
    lab, run = call
    lab.run("lists", 'alter table "DummyItem" alter "Name" type varchar(5)')
    poison = lab.write('insert into "DummyItem" ("Id", "Name") values (1, \'much too long\')')
    behind = lab.write('insert into "DummyItem" ("Id", "Name") values (2, \'fine\')')
    lab.settle()
    assert (lab.state(poison), lab.state(behind)) == ("Processing", "Prepared")
    early = run("skip", str(behind), "--reader", "lists")
    assert getattr(early.exception, "code", None) == "PC005"
    assert "would be" in run("skip", str(poison), "--reader", "lists", "--dry-run").output
    assert run("skip", str(poison), "--reader", "lists").exit_code == 0
    lab.collect_decisions()
    lab.settle()
    assert lab.run("lists", 'select "Id" from "DummyItem"') == [(2,)]
    assert lab.state(behind) == "Committed"
    shown = json.loads(run("show", str(poison), "--json").output)
    assert shown["readers"][0]["state"] == "Canceled"
    assert "skipped by an operator" in shown["readers"][0]["reason"]
    assert json.loads(run("readers", "--json").output)[0]["parked"] == 0
    # What was skipped comes with the next change of the row.
    lab.write('update "DummyItem" set "Name" = \'short\' where "Id" = 1')
    lab.settle()
    lab.assert_same("lists")


def test_a_snapshot_is_taken_from_the_command_line(call: tuple[Lab, Any]) -> None:
    lab, run = call
    lab.write('insert into "DummyItem" ("Name") select \'x\' from generate_series(1, 50)')
    lab.run("lists", 'truncate "DummyItem"')
    taken = run("snapshot", "--yes", "--json")
    assert json.loads(taken.output) == {"rows": {"DummyItem": 50, "DummyNode": 0}}
    lab.assert_same("lists")


def test_what_is_unknown_says_what_to_do(call: tuple[Lab, Any]) -> None:
    _, run = call
    for arguments in (("show", "4711"), ("retry", "4711"), ("cancel", "4711")):
        missing = run(*arguments)
        assert getattr(missing.exception, "code", None) == "PC005", arguments
        assert getattr(missing.exception, "hint", None)


@pytest.mark.parametrize("part", ["writer", "coordinator", "reader", "gateway"])
def test_every_part_serves_a_writer_of_any_name(
    call: tuple[Lab, Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, run = call
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path))
    lab.run("writer", "update coordination.node set name = 'shop'")
    served = run("serve", part, "--seconds", "0", "--port", "0")
    assert served.exit_code == 0, served.exception
    assert lab.run("writer", "select name from coordination.node") == [("shop",)]
    token = tmp_path / "coordination.token"
    # The Gateway is never open: without a token in the settings one is generated.
    assert token.exists() == (part == "gateway")
    if part == "gateway":
        assert token.stat().st_mode & 0o777 == 0o600
        assert len(token.read_text()) > 40
