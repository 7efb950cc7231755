"""An alert of coordination ends with what it was raised for, in whatever way that ends."""

from __future__ import annotations

import asyncio

from postroad.coordination.snapshot import take_snapshot
from tests.integration.coordination.lab import Lab

ITEM = 'insert into "DummyItem" ("Id", "Name") values ({}, \'{}\')'


def _park(lab: Lab) -> int | None:
    lab.run("r1", 'alter table "DummyItem" add constraint good check ("Name" <> \'bad\')')
    event = lab.write(ITEM.format(1, "bad"))
    lab.settle()
    assert _reports(lab, "r1") == [(True, f"coordination.parked.r1.{event}")]
    assert _parked(lab, event) == (1, True)
    return event


def _reports(lab: Lab, part: str) -> list[tuple[object, ...]]:
    return lab.run(part, "select is_raise, key from alerts.report order by id")


def _parked(lab: Lab, event: int | None) -> tuple[int, bool]:
    """How many events the Coordinator takes for parked at the Reader, and whether this one is."""
    return (
        lab.value("coordinator", "select parked from coordination.readers"),
        lab.value(
            "coordinator",
            "select is_parked from coordination.event_readers where event_id = %s",
            event,
        ),
    )


def test_a_parked_event_that_passes_when_it_is_retried_clears_its_alert(lab: Lab) -> None:
    event = _park(lab)
    lab.run("r1", 'alter table "DummyItem" drop constraint good')
    lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.settle()
    assert lab.state(event) == "Committed"
    assert _reports(lab, "r1")[1:] == [(False, f"coordination.parked.r1.{event}")]
    assert _parked(lab, event) == (0, False)


def test_a_parked_event_that_a_snapshot_brings_clears_its_alert(lab: Lab) -> None:
    event = _park(lab)
    lab.write('update "DummyItem" set "Name" = \'good\'')
    lab.publish()
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    lab.settle()
    assert lab.state(event) == "Committed"
    assert _reports(lab, "r1")[1:] == [(False, f"coordination.parked.r1.{event}")]
    assert _parked(lab, event) == (0, False)


def test_an_event_that_was_never_parked_reports_nothing(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" add check ("Name" <> \'bad\')')
    lab.write(ITEM.format(1, "good"), mode="two-phase")
    lab.write(ITEM.format(2, "bad"), mode="two-phase")
    lab.settle()
    assert _reports(lab, "r1") == []


def test_a_reader_that_is_removed_is_no_longer_silent(lab: Lab) -> None:
    lab.write(ITEM.format(1, "one"))
    lab.publish()
    for message in [each for each in lab.network if each.target == "coordinator"]:
        lab.deliver(message)
    lab.network.clear()
    lab.tick("10 minutes")
    lab.watch("0 seconds")
    key = "coordination.reader.r1"
    assert _reports(lab, "coordinator") == [(True, key)]
    lab.run("coordinator", "select coordination.remove_reader('r1')")
    assert _reports(lab, "coordinator") == [(True, key), (False, key)]
