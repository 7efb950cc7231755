"""`postroad alerts`, as an operator calls it."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postroad.cli.main import cli
from tests.fixtures.smtp import SmtpServer
from tests.integration.alerts.conftest import Reporter


@pytest.fixture
def run(database: str, monkeypatch: pytest.MonkeyPatch, smtp: SmtpServer) -> Any:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database)
    monkeypatch.setenv("POSTROAD_ALERTS__CHANNELS__MAIL", smtp.url())
    monkeypatch.setenv("POSTROAD_ALERTS__SEND_TIMEOUT", "2s")

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["alerts", *arguments])

    return call


def test_alerts_are_listed_and_acknowledged(run: Any, report: Reporter) -> None:
    assert "there are no alerts" in run("list").output
    report.raise_("one")
    report.raise_("two")
    found = json.loads(run("list", "--json").stdout)
    assert {one["key"] for one in found} == {"one", "two"}
    facts = json.loads(run("ack", "one", "--by", "me", "--json").stdout)
    assert (facts["acked"], facts["by"]) == (1, "me")
    assert "title of two" in run("list").output
    assert json.loads(run("ack", "--all", "--dry-run", "--json").stdout)["acked"] == 1
    facts = json.loads(run("ack", "--all", "--json").stdout)
    assert (facts["acked"], facts["keys"]) == (1, ["two"])
    assert getpass.getuser() in facts["by"]
    assert run("ack", "three").exception.code == "MA002"
    assert run("ack").exit_code == run("ack", "one", "--all").exit_code == 2


def test_alerts_are_raised_and_cleared_by_scripts(run: Any) -> None:
    assert run("raise", "backup", "it failed", "--severity", "critical").exit_code == 0
    assert json.loads(run("list", "--json").stdout)[0]["severity"] == "critical"
    assert run("clear", "backup").exit_code == 0
    assert json.loads(run("list", "--json").stdout) == []
    assert len(json.loads(run("list", "--all", "--json").stdout)) == 1


def test_a_test_says_whether_it_was_taken(run: Any, smtp: SmtpServer) -> None:
    done = run("test", "--json")
    assert done.exit_code == 0
    (outcome,) = json.loads(done.stdout)
    assert outcome["outcome"] == "sent"
    assert smtp.taken[0]["Subject"] == "[Postroad] test: Test of this channel"
    smtp.behaviour = "permanent"
    done = run("test")
    assert done.exit_code == 1
    assert "550 no such mailbox" in done.output
    (last, *_) = json.loads(run("notices", "--json").stdout)
    assert last["state"] == "given_up"
    assert last["tries"][0]["outcome"] == "failed"
    assert json.loads(run("list", "--json").stdout) == []
    assert run("test", "--channel", "none").exception.code == "MA003"


def test_channels_show_how_they_do(run: Any, smtp: SmtpServer) -> None:
    assert json.loads(run("channels", "--json").stdout)[0]["sent"] == 0
    run("test")
    (channel,) = json.loads(run("channels", "--json").stdout)
    assert channel["sent"] == 1
    assert channel["address"] == f"admin@example.com by smtp://127.0.0.1:{smtp.port}"
    assert run("retry", "4711").output == "there is nothing to try\n"


def test_without_channels_it_says_how_to_name_one(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POSTROAD_ALERTS__CHANNELS__MAIL")
    assert "POSTROAD_ALERTS__CHANNELS__MAIL" in run("channels").output
    assert "POSTROAD_ALERTS__CHANNELS__MAIL" in run("test").output


def test_a_sender_of_its_own_sends(run: Any, report: Reporter, smtp: SmtpServer) -> None:
    report.raise_("k")
    done = CliRunner(env={"POSTROAD_ALERTS__GROUP_WINDOW": "10ms"}).invoke(
        cli, ["alerts", "serve", "--seconds", "1"]
    )
    assert done.exit_code == 0
    assert "sending to mail" in done.output
    assert smtp.taken[0]["Subject"] == "[Postroad] error: title of k"


def test_a_problem_is_taken_muted_and_unmuted(run: Any, report: Reporter) -> None:
    report.raise_("line/7")
    assert run("own", "line/7", "--owner", "maria").output == "line/7 is taken by maria\n"
    assert run("mute", "line/7", "--duration", "2h").exit_code == 2
    why = ("--duration", "2h", "--reason", "a belt is replaced")
    # A dry run changes nothing.
    assert "would be muted until" in run("mute", "line/7", *why, "--dry-run").output
    assert json.loads(run("handled", "--json").stdout)[0]["muted_until"] is None
    assert run("mute", "line/7", *why).exit_code == 0
    (row,) = json.loads(run("handled", "--json").stdout)
    assert (row["owner"], row["mute_reason"]) == ("maria", "a belt is replaced")
    assert getpass.getuser() in row["muted_by"]
    (alert,) = json.loads(run("list", "--json").stdout)
    assert (alert["acked_by"], alert["is_muted"]) == ("maria", True)
    assert run("unmute", "line/7").output == "line/7 is no longer muted\n"
    assert run("unmute", "line/7").output == "line/7 was not muted\n"
