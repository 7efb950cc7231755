"""`postroad saga`: what it prints, what it changes, how it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from postroad.bus import Bus, Saga
from postroad.cli.main import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as leaving:
            main(["--database-url", database, "saga", *arguments])
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, capsys.readouterr().out

    return call


@pytest.fixture
def bus(database: str) -> Any:
    with Bus(database) as bus:
        for queue in ("rooms", "flights", "cancel_rooms", "cancel_flights"):
            bus.create_queue(queue, ncons=2)
        yield bus


@pytest.fixture
def saga_id(bus: Bus) -> int:
    return (
        Saga("trip", pivot="flight")
        .step("room", do="rooms", undo="cancel_rooms")
        .step("flight", do="flights", undo="cancel_flights", after=["room"])
        .start(bus)
    )


def test_a_saga_is_listed_and_drawn(run: Run, bus: Bus, saga_id: int) -> None:
    bus.consume("rooms")
    code, out = run("list", "--json")
    assert code == 0
    [listed] = json.loads(out)
    assert (listed["id"], listed["state"], listed["done"]) == (saga_id, "running", 1)
    _, out = run("show", str(saga_id))
    assert out.startswith(
        f"saga {saga_id} trip: running\n\n✔ room done\n└─ ○ flight ready  pivot\n"
    )
    _, out = run("show", str(saga_id), "--mermaid")
    assert out.startswith("flowchart LR\n")
    assert "  step0 --> step1\n" in out
    assert 'step1{{"flight<br/>ready"}}:::ready' in out
    _, out = run("show", str(saga_id), "--json")
    assert [step["step_state"] for step in json.loads(out)] == ["done", "ready"]
    assert "trip" in run("list")[1]


def test_a_saga_is_cancelled(run: Run, bus: Bus, saga_id: int) -> None:
    bus.consume("rooms")
    assert "would be" in run("cancel", str(saga_id), "--dry-run")[1]
    assert json.loads(run("show", str(saga_id), "--json")[1])[0]["state"] == "running"
    _, out = run("cancel", str(saga_id), "--reason", "enough", "--json")
    assert json.loads(out)["is_begun"]
    assert "already rolled back" in run("cancel", str(saga_id))[1]
    assert "enough" in run("show", str(saga_id))[1]


def test_a_parked_compensation_is_retried(run: Run, bus: Bus, saga_id: int) -> None:
    bus.consume("rooms")
    run("cancel", str(saga_id))
    [held] = bus.lease("cancel_rooms")
    bus.nack(held, error="refused", park=True)
    assert json.loads(run("list", "--state", "stuck", "--json")[1])[0]["id"] == saga_id
    assert "(refused)" in run("show", str(saga_id))[1]
    assert run("retry", str(saga_id)) == (0, "1 is redriven\n")
    assert len(bus.consume("cancel_rooms")) == 1
    assert json.loads(run("list", "--json")[1])[0]["state"] == "compensated"


def test_refusals_have_their_exit_codes(run: Run, bus: Bus, saga_id: int) -> None:
    assert run("show", "99")[0] == run("cancel", "99")[0] == run("retry", "99")[0] != 0
    bus.consume("rooms")
    bus.consume("flights")
    assert run("cancel", str(saga_id))[0] not in {0, run("show", "99")[0]}
