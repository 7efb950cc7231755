"""Events that are cancelled between their steps: what was decided reaches everybody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from postroad.testing import wait_until_blocked
from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import ADD, Lab


def _tell_coordinator(lab: Lab) -> None:
    lab.publish()
    for message in [each for each in lab.network if each.target == "coordinator"]:
        lab.network.remove(message)
        lab.deliver(message)


def _cancel(lab: Lab, event: int | None) -> None:
    """Decide against an event, and let everybody hear it."""
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()
    while lab.network:
        lab.deliver(lab.network.pop(0))


def test_a_row_that_never_was_does_not_empty_the_one_beside_it(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", policy="compensate")
    lab.write('insert into "DummyItem" ("Id", "Name") values (2, \'precious\')')
    lab.quiet()
    before = lab.rows("writer")
    made = lab.write('insert into "DummyItem" ("Id", "Name") values (1, \'n\')', mode="two-phase")
    erased = lab.write('delete from "DummyItem"', mode="two-phase")
    _tell_coordinator(lab)
    # Now nothing is known of what row 1 was before it was erased; of row 2 everything.
    for event in (made, erased):
        _cancel(lab, event)
    lab.settle()
    assert lab.writer_state(made) == lab.writer_state(erased) == "Canceled"
    assert lab.rows("writer") == before
    lab.assert_same()


def test_a_value_does_not_come_back_by_an_event_that_was_not_published_yet(
    open_a_lab: OpenLab,
) -> None:
    lab = open_a_lab("r1", policy="compensate")
    lab.write(ADD)
    lab.quiet()
    change = 'update "DummyItem" set "Name" = \'{}\' where "Id" = 1'
    first = lab.write(change.format("bad1"), mode="two-phase")
    _tell_coordinator(lab)
    second = lab.write(change.format("bad2"), mode="two-phase")
    _cancel(lab, first)
    _tell_coordinator(lab)
    _cancel(lab, second)
    lab.settle()
    assert lab.writer_state(first) == lab.writer_state(second) == "Canceled"
    assert lab.value("writer", 'select "Name" from "DummyItem" where "Id" = 1') == "one"
    lab.assert_same()


def test_a_child_that_comes_while_its_parent_is_being_erased_is_not_taken_along(
    open_a_lab: OpenLab,
) -> None:
    lab = open_a_lab("r1")
    for part, call in (("writer", "track"), ("r1", "replicate")):
        lab.run(
            part,
            "create table owner (id int primary key, name text); create table pet"
            " (id int primary key, owner int references owner on delete cascade)",
        )
        for table in ("owner", "pet"):
            lab.run(part, f"select coordination.{call}(%s)", table)
    event = lab.write("insert into owner values (1, 'o')", mode="two-phase")
    _tell_coordinator(lab)
    lab.run("writer", "set lock_timeout = '30s'")
    with psycopg.connect(lab.dsns["writer"]) as other, ThreadPoolExecutor(1) as aside:
        other.execute("insert into pet values (7, 1)")
        cancelled = aside.submit(_cancel, lab, event)
        with psycopg.connect(lab.dsns["writer"], autocommit=True) as looking:
            wait_until_blocked(looking, lab.sessions["writer"].info.backend_pid)
        other.commit()
        cancelled.result()
    assert lab.run("writer", "select * from pet") == [(7, 1)]
    assert lab.writer_state(event) == "Canceling"


def test_a_cancelled_event_that_the_writer_cannot_undo_is_not_staged_again(lab: Lab) -> None:
    many = 'insert into "DummyItem" ("Id", "Name") select g, \'x\' from generate_series(1, 25) g'
    event = lab.write(many, mode="two-phase")
    lab.publish()
    while lab.network:
        lab.deliver(lab.network.pop(0))
    lab.pull("r1")
    # The Reader has a part of it; the Writer keeps it, for somebody has changed one of its rows.
    lab.write('update "DummyItem" set "Name" = \'other\' where "Id" = 3')
    _cancel(lab, event)
    assert lab.writer_state(event) == "Canceling"
    assert lab.run("r1", "select position, sequence from coordination.progress") == [(1, 0)]
    later = lab.write('insert into "DummyNode" ("Name") values (\'later\')')
    lab.quiet()
    assert lab.state(later) == "Committed"
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    # Neither the cancelled rows nor what somebody changed in one of them.
    assert lab.rows("r1")["DummyItem"] == []


def test_a_page_of_cancelled_events_says_that_there_is_more(lab: Lab) -> None:
    for number in range(3):
        event = lab.write(
            f'insert into "DummyItem" ("Id", "Name") values ({number}, \'x\')', mode="two-phase"
        )
        _tell_coordinator(lab)
        _cancel(lab, event)
    page = "select events, more from coordination.pull(%s, 0, 1)"
    assert lab.run("writer", page, 0) == [(2, True)]
