"""Readers: waiting, parked, added later, away for long, behind in their schema."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.coordination import take_snapshot
from postroad.testing import TestServer, wait_until_blocked
from tests.fixtures.postgres import Connect
from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import CLOCK, ENTITIES, TABLES, Lab

ROWS = 1_000_000 if os.environ.get("POSTROAD_STRESS") else 5_000


def _add(number: int, name: str = "x", entity: str = "DummyItem") -> str:
    return f'insert into "{entity}" ("Id", "Name") values ({number}, \'{name}\')'


def test_a_poison_event_is_parked_and_only_its_own_entity_waits(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    poison = lab.write(_add(1, "too long for it"))
    lab.write(_add(2))
    lab.write(_add(1, "n", "DummyNode"))
    lab.settle()
    state, parked, attempts, reason = lab.run(
        "coordinator",
        "select state, is_parked, attempts, reason from coordination.event_readers"
        " where event_id = %s",
        poison,
    )[0]
    assert (state, parked, attempts) == ("Processing", True, 5)
    assert "too long for type character varying(5)" in reason
    assert lab.rows("r1")["DummyItem"] == []
    assert lab.rows("r1")["DummyNode"] == lab.rows("writer")["DummyNode"]
    assert lab.value(
        "r1", "select count(*) from alerts.report where key like 'coordination.parked.%'"
    )
    # Mended, and tried again.
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(50)')
    lab.run("coordinator", "select coordination.retry(%s)", poison)
    lab.settle()
    assert lab.state(poison) == "Committed"
    lab.assert_same()


def test_mended_tables_are_found_mended_within_seconds(lab: Lab) -> None:
    lab.run("r1", "update coordination.progress set max_attempts = 1000")
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    event = lab.write(_add(1, "too long for it"))
    lab.publish()
    lab.pull("r1")
    for _ in range(20):
        lab.tick("1 minute")
        lab.attend("r1")
    assert lab.value("r1", "select attempts from coordination.staging") == 21
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(50)')
    lab.tick("5 seconds")
    lab.attend("r1")
    lab.quiet()
    assert lab.state(event) == "Committed"
    lab.assert_same()


def test_many_that_wait_do_not_hide_a_lost_one_from_being_told_again(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    lab.write(_add(1, "too long for it"))
    for number in range(2, 600):
        lab.write(_add(number))
    lab.publish()
    while lab.pull("r1", page=1000):
        pass
    while lab.network:
        lab.deliver(lab.network.pop(0))
    decided = lab.write(_add(1, "n", "DummyNode"), mode="two-phase")
    lab.publish()
    lab.network.clear()
    # Lost. What waits behind the first one is older, and is told again, too.
    for _ in range(3):
        lab.tick("1 minute")
        lab.publish("30 seconds")
        assert lab.publish("30 seconds") == 0
    lab.pull("r1", page=1000)
    while lab.network:
        lab.deliver(lab.network.pop(0))
    assert lab.writer_state(decided) == "Committed"
    assert lab.rows("r1")["DummyNode"] == lab.rows("writer")["DummyNode"]


def test_by_policy_everything_waits_behind_a_parked_event(lab: Lab) -> None:
    lab.run("r1", "update coordination.progress set wait = 'all'")
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    lab.write(_add(1, "too long for it"))
    lab.write(_add(1, "n", "DummyNode"))
    lab.settle()
    assert lab.rows("r1")["DummyNode"] == []


def test_a_parked_event_can_be_cancelled_where_no_reader_has_committed_it(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    poison = lab.write(_add(1, "too long for it"))
    lab.write(_add(2, "fine"))
    lab.settle()
    lab.run("coordinator", "select coordination.cancel(%s)", poison)
    lab.collect_decisions()
    lab.settle()
    assert lab.state(poison) == lab.writer_state(poison) == "Canceled"
    assert [row[0] for row in lab.rows("writer")["DummyItem"]] == [2]
    lab.assert_same()


def test_the_acknowledgement_of_a_later_event_never_commits_a_cancelled_one(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" alter "Name" type varchar(5)')
    poison = lab.write(_add(1, "too long for it"))
    lab.settle()
    lab.run("coordinator", "select coordination.cancel(%s)", poison)
    lab.collect_decisions()
    for message in list(lab.network):
        # The Writer's copy of the decision is lost.
        lab.network.remove(message)
        if message.target != "writer":
            lab.deliver(message)
    lab.write(_add(2, "fine"))
    lab.quiet()
    lab.settle()
    assert lab.writer_state(poison) == "Canceled"
    lab.assert_same()


def test_what_is_committed_cannot_be_cancelled(lab: Lab) -> None:
    event = lab.write(_add(1))
    lab.quiet()
    with pytest.raises(Exception, match="is committed at reader r1") as refused:
        lab.run("coordinator", "select coordination.cancel(%s)", event)
    assert refused.value.sqlstate == "PC013"
    with pytest.raises(Exception, match="there is no event 4711") as refused:
        lab.run("coordinator", "select coordination.cancel(4711)")
    assert refused.value.sqlstate == "PC005"


def test_a_missing_column_is_named_and_parks_until_it_is_there(
    lab_of_each: Lab,
) -> None:
    lab = lab_of_each
    lab.run("writer", 'alter table "DummyItem" add "Extra" text default \'e\'')
    lab.run("writer", "select coordination.track('\"DummyItem\"')")
    event = lab.write(_add(1))
    lab.settle()
    reason = lab.value(
        "coordinator", "select reason from coordination.event_readers where event_id = %s", event
    )
    assert reason.startswith("column Extra of entity DummyItem is missing in table")
    lab.run("r1", 'alter table "DummyItem" add "Extra" text')
    lab.run("r1", "select coordination.replicate('\"DummyItem\"')")
    lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.settle()
    lab.assert_same()


def test_a_subset_leaves_columns_out(lab: Lab) -> None:
    lab.run("r1", 'alter table "DummyItem" drop "CorrelationId", add "Own" int default 7')
    lab.run("r1", "select coordination.replicate('\"DummyItem\"', null, true)")
    lab.write(_add(1))
    lab.write('update "DummyItem" set "Name" = \'y\'')
    lab.settle()
    assert lab.rows("r1")["DummyItem"] == [(1, "y", 7)]


def test_a_payload_from_before_a_column_leaves_the_column_alone(lab: Lab) -> None:
    lab.write(_add(1))
    for part, call in (("writer", "track"), ("r1", "replicate")):
        lab.run(part, 'alter table "DummyItem" add "Extra" text default \'e\'')
        lab.run(part, f"select coordination.{call}('\"DummyItem\"')")
    lab.settle()
    assert lab.value("r1", 'select "Extra" from "DummyItem"') == "e"
    lab.assert_same()


def test_an_entity_that_the_reader_does_not_know_stops_nobody_else(lab: Lab) -> None:
    lab.run("writer", "create table other (id int primary key)")
    lab.run("writer", "select coordination.track('other')")
    event = lab.write("insert into other values (1)")
    lab.write(_add(1))
    lab.settle()
    assert lab.rows("r1")["DummyItem"] == lab.rows("writer")["DummyItem"]
    reason = lab.value(
        "coordinator", "select reason from coordination.event_readers where event_id = %s", event
    )
    assert reason == "no entity is called other"
    # It does not want it.
    both = lab.write("insert into other values (2)", _add(2))
    lab.run("r1", "select coordination.ignore('other')")
    lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.settle()
    assert lab.state(event) == lab.state(both) == "Committed"
    lab.assert_same()


def test_a_page_or_a_message_of_another_version_changes_nothing(lab: Lab) -> None:
    for part, call in (("r1", "stage"), ("coordinator", "receive")):
        with pytest.raises(Exception, match="version 3") as refused:
            lab.run(part, f"select coordination.{call}(%s::jsonb)", json.dumps({"version": 3}))
        assert refused.value.sqlstate == "PC014"


@pytest.mark.both_versions
def test_unique_values_that_change_places_are_applied_in_the_writers_order(
    lab_of_each: Lab,
) -> None:
    lab = lab_of_each
    for part in ("writer", "r1"):
        lab.run(part, 'create unique index on "DummyItem" ("Name")')
    lab.write(_add(1, "a"), _add(2, "b"))
    lab.write(
        'update "DummyItem" set "Name" = \'spare\' where "Id" = 1',
        'update "DummyItem" set "Name" = \'a\' where "Id" = 2',
        'update "DummyItem" set "Name" = \'b\' where "Id" = 1',
    )
    lab.write('delete from "DummyItem" where "Id" = 1', _add(3, "b"))
    for _ in range(3):
        lab.publish()
    while lab.pull("r1", page=3):
        lab.settle(page=3)
    lab.assert_same()


@pytest.mark.both_versions
def test_children_may_come_before_their_parents_and_circles_close_at_commit(
    lab_of_each: Lab,
) -> None:
    lab = lab_of_each
    lab.write(
        "set constraints all deferred",
        'insert into "DummyNode" ("Id", "Name", "ParentId") values (2, \'child\', 1)',
        'insert into "DummyNode" ("Id", "Name", "ParentId") values (1, \'parent\', null)',
        'update "DummyNode" set "ParentId" = 2 where "Id" = 1',
    )
    lab.settle(page=1)
    lab.assert_same()
    lab.write('delete from "DummyNode"')
    lab.settle(page=1)
    lab.assert_same()
    assert lab.rows("r1")["DummyNode"] == []


def test_a_reader_that_was_away_catches_up_and_held_nobody_up(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2")
    for number in range(1, 31):
        lab.write(_add(number))
        lab.publish()
    while lab.pull("r1"):
        pass
    lab.assert_same("r1")
    lab.run("coordinator", "select coordination.set_voter('r2', false)")
    event = lab.write('update "DummyItem" set "Name" = \'decided without r2\'', mode="two-phase")
    lab.publish()
    while lab.pull("r1"):
        pass
    for message in [each for each in lab.network if each.target != "r2"]:
        lab.network.remove(message)
        lab.deliver(message)
    while [each for each in lab.network if each.target != "r2"]:
        message = next(each for each in lab.network if each.target != "r2")
        lab.network.remove(message)
        lab.deliver(message)
    assert lab.writer_state(event) == "Committed"
    lab.assert_same("r1")
    assert lab.rows("r2")["DummyItem"] == []
    lab.settle()
    lab.assert_same()


@pytest.mark.timeout(300)
async def test_a_reader_added_later_takes_a_snapshot_and_then_the_tail(
    lab: Lab, newest_server: TestServer, connect: Connect
) -> None:
    # Rows from before the table was tracked: no event tells of them.
    lab.run("writer", "set session_replication_role = replica")
    lab.run(
        "writer",
        f'insert into "DummyItem" ("Id", "Name") select n, \'n\' from generate_series(1, {ROWS}) n',
    )
    lab.run("writer", "set session_replication_role = origin")
    lab.write(
        'insert into "DummyNode" ("Id", "Name", "ParentId") select n, \'n\', nullif(n - 1, 0)'
        " from generate_series(1, 100) n"
    )
    lab.settle(page=1000)
    # Committed, in the copy, and without a position yet: must not be applied again.
    lab.write('update "DummyItem" set "Name" = \'first\' where "Id" = 1')
    lab.write('update "DummyItem" set "Name" = \'second\' where "Id" = 1')
    with newest_server.clone(*SCHEMAS) as late:
        session = connect(late, autocommit=True)
        session.execute(CLOCK)
        session.execute("select coordination.become('reader', 'late')")
        session.execute(TABLES)
        for entity in ENTITIES:
            session.execute("select coordination.replicate(%s)", (f'"{entity}"',))
        session.execute(_add(777_777, "somebody else"))
        copied = await take_snapshot(lab.dsns["writer"], late)
        assert copied == {"DummyItem": ROWS, "DummyNode": 100}
        lab.sessions["late"], lab.dsns["late"], lab.readers = session, late, ("r1", "late")
        lab.assert_same("late")
        before = lab.digest("late")
        lab.publish()
        lab.pull("late")
        assert lab.digest("late") == before
        lab.write('update "DummyItem" set "Name" = \'third\' where "Id" = 1')
        lab.settle()
        lab.assert_same("late")
        lab.sessions.pop("late")
        await asyncio.to_thread(session.close)


def test_finished_events_are_removed_in_time_and_unfinished_ones_kept(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2")
    for number in range(1, 6):
        lab.write(_add(number))
    lab.settle()
    lab.write(_add(100))
    lab.publish()
    while lab.pull("r1"):
        pass
    for part in lab.dsns:
        lab.run(part, "update clock set ahead = ahead + interval '8 days'")
        lab.run(part, "select coordination.purge()")
    left = lab.run(
        "writer",
        "select count(*), (select count(*) from coordination.payload_row)"
        ' from coordination."AppEvent"',
    )
    assert left == [(1, 1)]
    assert lab.run("coordinator", 'select count(*) from coordination."WriterEvent"')[0][0] <= 1
    lab.settle()
    lab.assert_same()


def test_a_reader_that_announces_itself_stands_in_no_pages_way(lab: Lab) -> None:
    lab.run(
        "r1",
        "create table owner (id int primary key);"
        " create table pet (id int primary key, owner int references owner);"
        " select coordination.replicate('owner'), coordination.replicate('pet')",
    )
    announcing = lab.sessions["r1"]
    with psycopg.connect(lab.dsns["r1"]) as staging, ThreadPoolExecutor(1) as aside:
        # As a page is staged: the progress first, then entities; taken crosswise it is a deadlock.
        staging.execute("select from coordination.progress for update")
        announced = aside.submit(announcing.execute, "select coordination.announce()")
        with psycopg.connect(lab.dsns["r1"], autocommit=True) as looking:
            wait_until_blocked(looking, announcing.info.backend_pid)
        staging.execute("update coordination.entity set applied = null")
        staging.commit()
        announced.result()


def test_the_states_of_the_readers_are_visible_in_the_tables(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2")
    event = lab.write("insert into \"DummyItem\" (\"Name\") values ('a'), ('b')", mode="two-phase")

    def deliver() -> str:
        while lab.network:
            lab.deliver(lab.network.pop(0))
        return lab.state(event)

    lab.publish()
    assert deliver() == "Activated"
    lab.pull("r1", page=1)
    lab.run("r1", "select coordination.announce()")
    lab.collect("r1", "co_votes", ("coordinator",))
    assert deliver() == "Preparing"
    payloads = 'select "IsPublished", "Date" is not null from coordination."AppEventPayload"'
    assert lab.run("r1", payloads) == [(True, True)]
    lab.pull("r1")
    lab.run("r2", "update coordination.progress set has_checks = true")
    lab.pull("r2")
    lab.run("r2", "select coordination.announce()")
    lab.collect("r2", "co_votes", ("coordinator",))
    # One has voted, the other has all of it and still asks its checks.
    assert deliver() == "Processing"
    lab.run("coordinator", "update coordination.reader set is_voter = false where name = 'r2'")
    lab.run("r2", "select coordination.vote(%s)", event)
    lab.collect("r2", "co_votes", ("coordinator",))
    assert deliver() == "Committed"
    published = 'select "IsPublished" from coordination."WriterEvent"'
    assert lab.run("coordinator", published) == [(True,)]


def test_an_event_that_begins_with_an_ignored_entity_is_kept_as_finished(lab: Lab) -> None:
    lab.run("writer", "create table other (id int primary key)")
    lab.run("writer", "select coordination.track('other')")
    lab.run("r1", "select coordination.ignore('other')")
    event = lab.write("insert into other values (1)", _add(1))
    lab.quiet()
    lab.assert_same()
    finished = 'select "Id" from coordination."AppEvent"'
    assert lab.run("r1", finished) == [(event,)]


def test_progress_alone_is_reported_rarely_and_in_the_end(lab: Lab) -> None:
    told = "select finished_to from coordination.reader where name = 'r1'"
    for number in (1, 2):
        lab.write(_add(number))
        lab.publish()
    lab.pull("r1", page=1)
    reports = len(lab.network)
    # Less than a tenth of a second later, however slow this machine is.
    lab.run("r1", "update clock set ahead = ahead - interval '1 minute'")
    lab.pull("r1", page=1)
    assert len(lab.network) == reports
    lab.attend("r1")
    assert len(lab.network) == reports
    lab.tick("2 minutes")
    lab.attend("r1")
    assert len(lab.network) == reports + 1
    lab.attend("r1")
    assert len(lab.network) == reports + 1
    while lab.network:
        lab.deliver(lab.network.pop(0))
    assert lab.value("coordinator", told) == lab.value(
        "r1", "select position from coordination.progress"
    )


def test_the_first_report_of_a_reader_shows_what_it_has_finished(lab: Lab) -> None:
    # Its announcement was lost.
    lab.run("coordinator", "delete from coordination.reader")
    event = lab.write(_add(1))
    lab.quiet()
    states = lab.run(
        "coordinator",
        "select state from coordination.event_history where event_id = %s and reader = 'r1'"
        " order by place",
        event,
    )
    assert [state for (state,) in states] == [
        *("Preparing", "Prepared", "Processing", "Processed", "Committing", "Committed")
    ]


@pytest.mark.parametrize("name", ["main", "writer"])
def test_a_reader_cannot_have_the_name_of_a_bridge(lab: Lab, name: str) -> None:
    lab.run("coordinator", "delete from coordination.node")
    with pytest.raises(psycopg.Error, match=f"cannot be called {name}") as refused:
        lab.run("coordinator", "select coordination.become('reader', %s)", name)
    assert refused.value.sqlstate == "PC006"


def test_a_coordinator_beside_its_writer_shows_each_state_once(lab: Lab) -> None:
    lab.run("writer", "select coordination.become('coordinator', 'main')")
    event = lab.write(_add(1))
    lab.run("writer", "select coordination.publish()")
    lab.run(
        "writer",
        "select coordination.receive(m.data) from mbus.consumen_co_events_by_coordinator(10) m",
    )
    states = lab.run(
        "writer",
        "select state from coordination.event_history where event_id = %s order by at, place",
        event,
    )
    assert [state for (state,) in states][:4] == ["Created", "Saving", "Saved", "Activated"]


def test_an_upgrade_makes_the_views_of_a_reader_again(lab: Lab) -> None:
    view = 'coordination."AppEventCommitForDummyItem"'
    lab.run("r1", f"drop view {view}")
    lab.run("r1", (files("postroad.coordination") / "sql/after.sql").read_text(encoding="utf-8"))
    assert lab.run("r1", f"select * from {view}") == []
