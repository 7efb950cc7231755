"""What is kept for whom: decisions, events of readers that are gone, entities that are left."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from postroad.coordination.snapshot import take_snapshot
from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import Lab

ITEM = 'insert into "DummyItem" ("Id", "Name") values ({}, \'x\')'


def _deliver_all(lab: Lab, *, but: str | None = None) -> None:
    while lab.network:
        message = lab.network.pop(0)
        if message.target != but:
            lab.deliver(message)


def test_a_decision_is_kept_until_the_writer_has_heard_it(lab: Lab) -> None:
    event = lab.write(ITEM.format(1), mode="two-phase")
    lab.publish()
    _deliver_all(lab, but="r1")
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()
    lab.pull("r1")
    _deliver_all(lab, but="writer")
    assert lab.state(event) == "Canceled"
    lab.tick("8 days")
    assert lab.value("coordinator", "select coordination.purge()") == 0
    lab.settle()
    assert lab.state(event) == lab.writer_state(event) == "Canceled"
    assert lab.rows("writer")["DummyItem"] == lab.rows("r1")["DummyItem"] == []
    # With the Writer's next word the Coordinator knows that it may forget.
    lab.write(ITEM.format(2))
    lab.settle()
    lab.tick("8 days")
    lab.run("coordinator", "select coordination.purge()")
    assert lab.run("coordinator", "select event_id from coordination.decision") == []


def test_a_reader_that_was_removed_takes_a_snapshot_and_counts_again(lab: Lab) -> None:
    lab.write(ITEM.format(1))
    lab.quiet()
    staged = lab.write(ITEM.format(2), mode="two-phase")
    lab.publish()
    lab.pull("r1")
    lab.network.clear()
    lab.run("coordinator", "select coordination.remove_reader('r1')")
    lab.run("writer", "select coordination.publish('0 seconds')")
    lab.collect("writer", "co_events", ("coordinator",))
    lab.run("r1", "select coordination.announce()")
    lab.collect("r1", "co_votes", ("coordinator",))
    _deliver_all(lab)
    assert lab.run("coordinator", "select name from coordination.reader") == []
    assert lab.value("r1", "select needs_snapshot from coordination.progress")
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    lab.settle()
    assert lab.run("coordinator", "select name, generation from coordination.reader") == [("r1", 1)]
    assert not lab.value("r1", "select needs_snapshot from coordination.progress")
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    assert lab.state(staged) == lab.writer_state(staged)
    lab.assert_same()
    # A word from before the snapshot, or a doubled order to take one, changes nothing.
    lab.run(
        "r1",
        'select coordination.settle(\'{"version": 1, "kind": "snapshot", "reader": "r1",'
        ' "generation": 0, "newest": 0}\')',
    )
    assert not lab.value("r1", "select needs_snapshot from coordination.progress")


def test_a_reader_whose_database_went_back_in_time_takes_a_snapshot(lab: Lab) -> None:
    for _ in range(3):
        asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    lab.write(ITEM.format(1))
    lab.settle()
    # As a backup would bring it back.
    lab.run("r1", "update coordination.progress set generation = 1, position = 0")
    lab.run("r1", 'delete from "DummyItem"')
    lab.run("r1", "select coordination.announce()")
    lab.settle()
    assert lab.value("r1", "select needs_snapshot from coordination.progress")
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    lab.settle()
    assert lab.run("coordinator", "select name, generation from coordination.reader") == [("r1", 4)]
    lab.assert_same()


def test_a_cursor_before_what_was_removed_is_refused(lab: Lab) -> None:
    for number in (1, 2):
        lab.write(ITEM.format(number))
        lab.quiet()
    lab.tick("8 days")
    assert lab.value("writer", "select coordination.purge()") == 2
    with pytest.raises(psycopg.Error) as refusal:
        lab.run("writer", "select coordination.pull(0)")
    assert refusal.value.sqlstate == "PC015"
    assert lab.value("writer", "select events from coordination.pull(2)") == 0


def test_events_of_an_entity_that_is_no_longer_tracked_are_carried_on(lab: Lab) -> None:
    replicated = lab.write(ITEM.format(1))
    lab.publish()
    lab.run("writer", "select coordination.untrack('DummyItem')")
    lab.settle()
    assert lab.state(replicated) == "Committed"
    lab.assert_same()
    # Tracked anew it is the same entity; and what is cancelled after it was left is restored.
    lab.run("writer", "select coordination.track('\"DummyItem\"')")
    event = lab.write(ITEM.format(2), mode="two-phase")
    lab.run("writer", "select coordination.untrack('DummyItem')")
    lab.publish()
    _deliver_all(lab)
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert [row[0] for row in lab.rows("writer")["DummyItem"]] == [1]
    # The Writer hears with the next event that everybody is done with this one.
    lab.write('insert into "DummyNode" ("Name") values (\'n\')')
    lab.settle()
    lab.tick("8 days")
    lab.run("writer", "select coordination.purge()")
    assert lab.run("writer", "select name from coordination.entity") == [("DummyNode",)]


def test_a_decision_from_before_a_snapshot_does_not_stay(lab: Lab) -> None:
    event = lab.write(ITEM.format(1), mode="two-phase")
    lab.publish()
    _deliver_all(lab, but="r1")
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()
    _deliver_all(lab)
    early = "select event_id from coordination.early_decision"
    assert lab.run("r1", early) == [(event,)]
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    assert lab.run("r1", early) == []
    lab.settle()
    lab.assert_same()


def test_where_no_reader_is_known_nobody_has_said_yes(open_a_lab: OpenLab) -> None:
    lab = open_a_lab()
    event = lab.write(ITEM.format(1), mode="two-phase")
    lab.publish()
    _deliver_all(lab)
    assert lab.run("coordinator", "select * from coordination.decision") == []
    lab.tick("1 minute")
    lab.settle()
    assert lab.state(event) == lab.writer_state(event) == "Canceled"
    assert lab.rows("writer")["DummyItem"] == []
    assert "without a vote of any reader" in lab.value(
        "coordinator", "select reason from coordination.decision"
    )


def test_an_event_comes_when_it_was_committed_and_not_when_it_was_begun(lab: Lab) -> None:
    with psycopg.connect(lab.dsns["writer"]) as slow:
        slow.execute(ITEM.format(1).encode())
        lab.write(ITEM.format(2))
        slow.commit()
    lab.publish()
    lab.pull("r1", page=1)
    assert [row[0] for row in lab.rows("r1")["DummyItem"]] == [2]
    lab.settle()
    lab.assert_same()


def test_a_copy_of_a_writer_that_keeps_no_event_begins_after_what_was_removed(lab: Lab) -> None:
    for number in (1, 2):
        lab.write(ITEM.format(number))
        lab.quiet()
    lab.tick("8 days")
    assert lab.value("writer", "select coordination.purge()") == 2
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    # Otherwise the Writer would refuse the cursor, and every snapshot would call for another.
    assert lab.pull("r1") is False
    later = lab.write(ITEM.format(3))
    lab.settle()
    assert lab.state(later) == "Committed"
    lab.assert_same()


def test_a_reader_that_got_an_event_by_its_snapshot_does_not_hold_the_decision_up(lab: Lab) -> None:
    event = lab.write(ITEM.format(1), mode="two-phase")
    # The copy holds it although it has no position yet: nobody will ask this Reader for a vote.
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    lab.collect("r1", "co_votes", ("coordinator",))
    lab.quiet()
    decided = "select outcome from coordination.decision where event_id = %s"
    assert lab.run("coordinator", decided, event) == [("commit",)]
    assert lab.state(event) == lab.writer_state(event) == "Committed"
    lab.assert_same()


def test_a_copy_holds_what_is_no_longer_tracked_while_it_has_events(lab: Lab) -> None:
    lab.write(ITEM.format(1))
    lab.quiet()
    lab.write('update "DummyItem" set "Name" = \'y\'')
    lab.publish()
    lab.run("writer", "select coordination.untrack('DummyItem')")
    lab.run("writer", 'alter table "DummyItem" add note text')
    # The cursor passes the update, so the copy has to bring it.
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    assert lab.value("r1", 'select "Name" from "DummyItem"') == "y"
    lab.settle()
    assert lab.value("r1", "select count(*) from coordination.staging") == 0


def test_a_table_that_is_no_longer_tracked_may_have_another_name(lab: Lab) -> None:
    lab.write(ITEM.format(1))
    lab.publish()
    lab.run("writer", "select coordination.untrack('DummyItem')")
    lab.run("writer", "select coordination.track('\"DummyItem\"', 'Article')")
    with pytest.raises(psycopg.Error) as refusal:
        lab.run("writer", "select coordination.track('\"DummyItem\"')")
    assert refusal.value.sqlstate == "PC007"
    # Each event keeps the name that it was written under; the rows are sent under the new one.
    lab.write(ITEM.format(2))
    lab.publish()
    entities = 'select "Entities" from coordination."AppEvent" order by "Position"'
    assert lab.run("writer", entities) == [(["DummyItem"],), (["Article"],), (["Article"],)]


def test_a_table_that_was_renamed_or_dropped_can_be_left(lab: Lab) -> None:
    lab.run("writer", 'alter table "DummyItem" rename to renamed')
    lab.run("writer", 'drop table "DummyNode"')
    for entity in ("DummyItem", "DummyNode"):
        lab.run("writer", "select coordination.untrack(%s)", entity)
    roles = "select name, role from coordination.entity order by 1"
    assert lab.run("writer", roles) == [("DummyItem", "untracked"), ("DummyNode", "untracked")]
    assert lab.write("insert into renamed (\"Name\") values ('unseen')") is None
    assert lab.run("writer", 'select "Id" from coordination."AppEvent"') == []
    # What is undone would be undone in the wrong table.
    lab.run("writer", "create table another (id int primary key)")
    with pytest.raises(psycopg.Error) as refusal:
        lab.run("writer", "select coordination.track('another', 'DummyNode')")
    assert refusal.value.sqlstate == "PC007"


def test_an_entity_follows_its_table_to_another_name(lab: Lab) -> None:
    lab.run("writer", 'alter table "DummyItem" rename to renamed')
    lab.run("writer", "select coordination.track('renamed', 'DummyItem')")
    event = lab.write('insert into renamed ("Id", "Name") values (1, \'seen\')')
    lab.quiet()
    assert lab.state(event) == "Committed"
    assert lab.value("r1", 'select "Name" from "DummyItem"') == "seen"


def test_a_replica_cannot_be_untracked(lab: Lab) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        lab.run("r1", "select coordination.untrack('DummyItem')")
    assert refusal.value.sqlstate == "PC010"


def test_a_newly_tracked_table_brings_the_rows_that_it_has(lab: Lab) -> None:
    for part in ("writer", "r1"):
        lab.run(part, "create table old (id bigint primary key, name text, price numeric)")
    lab.run("writer", "insert into old select n, 'row ' || n from generate_series(1, 25) n")
    lab.write('insert into "DummyItem" ("Name") values (\'follows already\')')
    lab.quiet()
    lab.run("r1", "select coordination.replicate('old')")
    lab.run("writer", "select coordination.track('old', null, 'two-phase', 'compensate')")
    lab.quiet()
    rows = "select * from old order by id"
    assert lab.run("r1", rows) == lab.run("writer", rows)
    # A column that was added and filled before anybody called track again.
    for part in ("writer", "r1"):
        lab.run(part, "alter table old add column note text")
    lab.run("writer", "update old set note = 'new' where id <= 3")
    lab.run("r1", "select coordination.replicate('old')")
    event = lab.write("select coordination.track('old')")
    lab.quiet()
    assert lab.run("r1", rows) == lab.run("writer", rows)
    count = 'select "PayloadCount" from coordination."AppEvent" where "Id" = %s'
    assert lab.value("writer", count, event) == 3
    # Called again it keeps what it was told before, and sends nothing.
    kept = "select mode, on_conflict from coordination.entity where name = 'old'"
    assert lab.run("writer", kept) == [("two-phase", "compensate")]
    assert lab.write("select coordination.track('old', p_mode => 'replicate')") is None
    assert lab.run("writer", kept) == [("replicate", "compensate")]


def test_cancelling_the_event_of_a_newly_tracked_table_removes_nothing(lab: Lab) -> None:
    lab.run("writer", "create table old (id bigint primary key); insert into old values (1), (2)")
    event = lab.write("select coordination.track('old')")
    lab.publish()
    while lab.network:
        lab.deliver(lab.network.pop(0))
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert lab.run("writer", "select count(*) from old") == [(2,)]


def test_a_table_may_be_tracked_without_its_rows(lab: Lab) -> None:
    lab.run("writer", "create table old (id bigint primary key); insert into old values (1), (2)")
    assert lab.write("select coordination.track('old', p_with_rows => false)") is None


def test_an_event_that_was_begun_long_ago_is_published_when_it_is_committed(lab: Lab) -> None:
    def published_to() -> int:
        return int(
            lab.value("writer", "select current_setting('coordination.published_to', true)") or 0
        )

    with psycopg.connect(lab.dsns["writer"]) as long:
        long.execute('insert into "DummyItem" ("Id", "Name") values (100, \'late\')')
        row = long.execute("select coordination.current_event()").fetchone()
        assert row is not None
        for number in range(1, 6):
            lab.write(f'insert into "DummyItem" ("Id", "Name") values ({number}, \'x\')')
            lab.publish()
        # The publisher goes on searching from before it.
        assert published_to() < row[0]
    assert lab.publish() == 1
    # Transactions of other databases of this server hold the publisher back, too.
    deadline, number = time.monotonic() + 40, 6
    while published_to() <= row[0] and time.monotonic() < deadline:
        lab.write(f'insert into "DummyItem" ("Id", "Name") values ({number}, \'x\')')
        lab.publish()
        number += 1
        time.sleep(0.1)
    assert published_to() > row[0]
    lab.quiet()
    lab.assert_same()


def test_events_are_never_searched_by_reading_whole_tables(lab: Lab) -> None:
    tables = {"writer": "AppEvent", "coordinator": "WriterEvent"}
    scans = "select seq_scan from pg_stat_user_tables where relname = %s"

    def count() -> list[int]:
        for part in tables:
            lab.run(part, "select pg_stat_force_next_flush()")
        return [lab.value(part, scans, table) for part, table in tables.items()]

    before = count()
    for number in range(1, 6):
        lab.write(f'insert into "DummyItem" ("Id", "Name") values ({number}, \'x\')')
        lab.quiet()
    assert count() == before
