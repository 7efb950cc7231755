"""Rollback destroys nothing: a Reader drops what it staged, the Writer restores what is left."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import ADD, Lab


def _refuse_bad_names(lab: Lab, reader: str = "r1") -> None:
    lab.run(reader, 'alter table "DummyItem" add check ("Name" <> \'bad\')')


def _prepared(open_a_lab: OpenLab, policy: str = "refuse") -> Lab:
    lab = open_a_lab("r1", policy=policy)
    lab.write(ADD)
    lab.quiet()
    _refuse_bad_names(lab)
    return lab


def test_a_veto_by_one_of_three_readers_rolls_everybody_back(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2", "r3")
    lab.write(ADD)
    lab.quiet()
    _refuse_bad_names(lab, "r2")
    before = lab.rows("writer")
    event = lab.write(
        'update "DummyItem" set "Name" = \'bad\' where "Id" = 1',
        'delete from "DummyItem" where "Id" = 2',
        'insert into "DummyItem" ("Id", "Name") values (4, \'four\')',
        mode="two-phase",
    )
    lab.settle()
    assert lab.state(event) == lab.writer_state(event) == "Canceled"
    assert lab.rows("writer") == before
    lab.assert_same()
    votes = lab.run(
        "coordinator",
        "select reader, vote from coordination.event_readers where event_id = %s order by 1",
        event,
    )
    assert votes == [("r1", "yes"), ("r2", "no"), ("r3", "yes")]


def test_the_reader_never_shows_what_was_refused(open_a_lab: OpenLab) -> None:
    lab = _prepared(open_a_lab)
    before = lab.rows("r1")
    lab.write('update "DummyItem" set "Name" = \'bad\'', mode="two-phase")
    lab.publish()
    lab.pull("r1")
    assert lab.rows("r1") == before
    assert lab.value("r1", "select count(*) from coordination.payload_row") == 3
    lab.settle()
    assert lab.rows("r1") == before
    assert lab.value("r1", "select count(*) from coordination.payload_row") == 0


def test_rows_that_somebody_changed_since_are_left_and_an_alert_is_raised(
    open_a_lab: OpenLab,
) -> None:
    lab = _prepared(open_a_lab)
    event = lab.write(
        'update "DummyItem" set "Name" = \'bad\' where "Id" in (1, 2)', mode="two-phase"
    )
    # Somebody else, before the votes are in.
    lab.write('update "DummyItem" set "Name" = \'mine\' where "Id" = 1')
    lab.settle()
    assert lab.writer_state(event) == "Canceling"
    names = lab.run("writer", 'select "Name" from "DummyItem" order by "Id"')
    assert names == [("mine",), ("bad",), ("three",)]
    reason = lab.value(
        "writer", 'select "Reason" from coordination."AppEvent" where "Id" = %s', event
    )
    assert "1 of 2 rows of DummyItem were changed since" in reason
    alerts = lab.run(
        "writer", "select key, is_raise from alerts.report where room = 'coordination'"
    )
    assert (f"coordination.rollback.{event}", True) in alerts


def test_a_refused_rollback_is_done_when_it_is_retried_after_the_row_was_mended(
    open_a_lab: OpenLab,
) -> None:
    lab = _prepared(open_a_lab)
    event = lab.write('update "DummyItem" set "Name" = \'bad\' where "Id" = 1', mode="two-phase")
    lab.write('update "DummyItem" set "Name" = \'mine\' where "Id" = 1')
    lab.settle()
    assert lab.writer_state(event) == "Canceling"
    lab.write('update "DummyItem" set "Name" = \'bad\' where "Id" = 1')
    # The Reader refuses that too, by its own constraint; it may have it now.
    lab.run("r1", 'alter table "DummyItem" drop constraint "DummyItem_Name_check"')
    lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.collect_decisions()
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert lab.value("writer", 'select "Name" from "DummyItem" where "Id" = 1') == "one"
    lab.assert_same()


def test_a_compensation_is_a_new_event_that_keeps_the_changes_of_others(
    open_a_lab_of_each: OpenLab,
) -> None:
    lab = _prepared(open_a_lab_of_each, policy="compensate")
    event = lab.write(
        'update "DummyItem" set "Name" = \'bad\' where "Id" in (1, 2)',
        'insert into "DummyItem" ("Id", "Name") values (4, \'four\')',
        mode="two-phase",
    )
    # Another column of row 1; the new row itself.
    lab.write(
        'update "DummyItem" set "CorrelationId" = \'00000000-0000-0000-0000-000000000001\''
        ' where "Id" = 1'
    )
    lab.write('update "DummyItem" set "Name" = \'kept\' where "Id" = 4')
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    rows = lab.run(
        "writer", 'select "Id", "Name", "CorrelationId"::text from "DummyItem" order by 1'
    )
    assert rows[0] == (1, "one", "00000000-0000-0000-0000-000000000001")
    assert [row[:2] for row in rows[1:]] == [(2, "two"), (3, "three"), (4, "kept")]
    lab.assert_same()
    assert (
        lab.value(
            "writer", 'select count(*) from coordination."AppEvent" where "Cancels" = %s', event
        )
        == 1
    )


def test_inserts_deletes_and_updates_of_a_tree_are_undone_in_any_order(
    open_a_lab_of_each: OpenLab,
) -> None:
    lab = _prepared(open_a_lab_of_each)
    lab.write(
        'insert into "DummyNode" ("Id", "Name", "ParentId") values'
        " (1, 'root', null), (2, 'left', 1), (3, 'right', 1), (4, 'leaf', 2)"
    )
    lab.quiet()
    before = lab.rows("writer")
    event = lab.write(
        'insert into "DummyNode" ("Id", "Name", "ParentId")'
        " values (5, 'new', 4), (6, 'newer', 5)",
        'update "DummyNode" set "ParentId" = 5 where "Id" = 3',
        'insert into "DummyItem" ("Id", "Name") values (99, \'bad\')',
        mode="two-phase",
    )
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert lab.rows("writer") == before
    event = lab.write(
        "set constraints all deferred",
        'delete from "DummyNode" where "Id" in (1, 2)',
        'update "DummyNode" set "ParentId" = null',
        'insert into "DummyItem" ("Id", "Name") values (99, \'bad\')',
        mode="two-phase",
    )
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert lab.rows("writer") == before
    lab.assert_same()


def test_the_deadline_cancels_what_a_reader_never_voted_on(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2")
    event = lab.write(ADD, mode="two-phase")
    lab.publish()
    lab.pull("r1")
    for message in list(lab.network):
        if message.target == "coordinator":
            lab.run(
                "coordinator",
                "select coordination.receive(%s::jsonb, '0 seconds')",
                json.dumps(message.body),
            )
    lab.network.clear()
    lab.watch()
    assert lab.value("coordinator", "select outcome from coordination.decision") == "cancel"
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert "without a vote of r2" in lab.value(
        "coordinator", "select reason from coordination.decision where event_id = %s", event
    )
    lab.assert_same()


def test_what_was_built_on_a_cancelled_event_waits_for_what_makes_up_for_it(
    open_a_lab: OpenLab,
) -> None:
    lab = open_a_lab("r1", policy="compensate")
    node = 'insert into "DummyNode" ("Id", "Name", "ParentId") values ({}, \'n\', {})'
    ground = lab.write(node.format(1, "null"), mode="two-phase")
    built = lab.write(node.format(2, 1))
    other = lab.write('update "DummyNode" set "Name" = \'o\' where "Id" = 2', mode="two-phase")
    lab.publish()
    lab.network = [each for each in lab.network if each.target == "coordinator"]
    while lab.network:
        lab.deliver(lab.network.pop(0))
    for event in (ground, other):
        lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()
    # The Reader hears it at once, the Writer late: the Reader has no parent for the child.
    late = [each for each in lab.network if each.target == "writer"]
    lab.network = [each for each in lab.network if each.target != "writer"]
    lab.pull("r1")
    while lab.network:
        message = lab.network.pop(0)
        (late.append if message.target == "writer" else lab.deliver)(message)
    for _ in range(10):
        lab.tick()
        lab.attend("r1")
    assert lab.value(
        "r1", "select parked_at is not null from coordination.staging order by position"
    )
    lab.network += late
    lab.settle()
    assert lab.state(built) == "Committed"
    assert lab.state(ground) == lab.writer_state(ground) == "Canceled"
    assert [row[0] for row in lab.rows("r1")["DummyNode"]] == [1, 2]
    lab.assert_same()


def test_an_event_cancelled_between_two_of_its_pages_is_in_nobodys_way(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1")
    many = 'insert into "DummyItem" ("Name") select \'x\' from generate_series(1, 25)'
    event = lab.write(many, mode="two-phase")
    lab.publish()
    while lab.network:
        lab.deliver(lab.network.pop(0))
    lab.pull("r1")
    staged = "select staged < count and staged > 0 from coordination.staging"
    assert lab.value("r1", staged)
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()
    while lab.network:
        lab.deliver(lab.network.pop(0))
    assert lab.writer_state(event) == "Canceled"
    later = lab.write('insert into "DummyItem" ("Name") values (\'later\')')
    lab.settle()
    assert lab.state(later) == "Committed"
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    lab.assert_same()


@pytest.mark.parametrize("setting", ["timezone = 'Asia/Tokyo'", "intervalstyle = 'sql_standard'"])
def test_a_row_is_unchanged_in_whatever_way_it_was_written_down(
    open_a_lab: OpenLab, setting: str
) -> None:
    lab = open_a_lab("r1")
    table = "create table visit (id int primary key, at timestamptz, stay interval, weight real)"
    lab.run("writer", f"{table}; select coordination.track('visit')")
    lab.run("r1", f"{table}; select coordination.replicate('visit')")
    lab.write("insert into visit values (1, '2026-01-01 00:00+00', '1 day', 1.1)")
    lab.quiet()
    before = lab.run("writer", "select * from visit")
    lab.run("r1", "alter table visit add check (at < '2026-06-01')")
    with psycopg.connect(lab.dsns["writer"]) as session:
        session.execute(f"set {setting}".encode())
        session.execute("set extra_float_digits = 0")
        session.execute("select coordination.set_mode('two-phase')")
        session.execute(
            "update visit set at = '2026-07-01 12:00+00', stay = '1 mon -2 days', weight = 2.0/3"
        )
    lab.settle()
    states = 'select distinct "AppEventStatusId" from coordination."AppEvent" where "Mode" = %s'
    assert lab.run("writer", states, "two-phase") == [(11,)]
    assert lab.run("writer", "select * from visit") == before
    assert lab.run("r1", "select * from visit") == before


def test_a_column_added_since_does_not_make_a_row_another(open_a_lab: OpenLab) -> None:
    lab = _prepared(open_a_lab)
    event = lab.write(
        'update "DummyItem" set "Name" = \'bad\' where "Id" = 1',
        'delete from "DummyItem" where "Id" = 2',
        mode="two-phase",
    )
    for part, call in (("writer", "track"), ("r1", "replicate")):
        lab.run(part, "alter table \"DummyItem\" add note text default 'new'")
        lab.run(part, f"select coordination.{call}('\"DummyItem\"')")
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    rows = lab.run("writer", 'select "Id", "Name", note from "DummyItem" order by 1')
    assert rows == [(1, "one", "new"), (2, "two", "new"), (3, "three", "new")]
    lab.assert_same()


@pytest.mark.parametrize("action", ["cascade", "set null"])
@pytest.mark.parametrize("policy", ["refuse", "compensate"])
def test_what_others_hung_below_a_row_is_neither_erased_nor_cut_off(
    open_a_lab: OpenLab, policy: str, action: str
) -> None:
    lab = open_a_lab("r1", policy=policy)
    tables = (
        "create table owner (id int primary key, name text);"
        f" create table pet (id int primary key, owner int references owner on delete {action})"
    )
    for part in ("writer", "r1"):
        lab.run(part, tables)
        for table in ("owner", "pet"):
            if part == "writer":
                lab.run(part, "select coordination.track(%s, null, 'replicate', %s)", table, policy)
            else:
                lab.run(part, "select coordination.replicate(%s)", table)
    lab.run("r1", "alter table owner add check (name <> 'bad')")
    event = lab.write(
        "insert into owner values (1, 'bad')", "insert into pet values (1, 1)", mode="two-phase"
    )
    lab.write("insert into pet values (7, 1)")
    lab.settle()
    assert lab.run("writer", "select * from pet where id = 7") == [(7, 1)]
    if policy == "refuse":
        assert lab.writer_state(event) == "Canceling"
        assert "referred to by rows of public.pet" in lab.value(
            "writer", 'select "Reason" from coordination."AppEvent" where "Id" = %s', event
        )
        # Mended, it goes, and its own child with it.
        lab.write("delete from pet where id = 7")
        lab.run("coordinator", "select coordination.retry(%s)", event)
        lab.settle()
        assert lab.run("writer", "select (select count(*) from owner), count(*) from pet") == [
            (0, 0)
        ]
    assert lab.writer_state(event) == "Canceled"


@pytest.mark.parametrize("policy", ["refuse", "compensate"])
def test_two_cancelled_changes_of_one_row_leave_what_was_before_both(
    open_a_lab: OpenLab, policy: str
) -> None:
    lab = open_a_lab("r1", policy=policy)
    lab.write(ADD)
    lab.quiet()
    lab.run("r1", 'alter table "DummyItem" add check ("Name" not like \'bad%\')')
    # The first is decided while the second still stands on it.
    events = [
        lab.write(
            'update "DummyItem" set "Name" = \'bad1\' where "Id" = 1',
            'insert into "DummyItem" ("Id", "Name") values (4, \'bad\')',
            'delete from "DummyItem" where "Id" = 2',
            mode="two-phase",
        ),
        lab.write(
            'update "DummyItem" set "Name" = \'bad2\' where "Id" in (1, 4)',
            'insert into "DummyItem" ("Id", "Name") values (2, \'bad\')',
            mode="two-phase",
        ),
    ]
    lab.settle()
    assert [lab.writer_state(event) for event in events] == ["Canceled", "Canceled"]
    rows = lab.run("writer", 'select "Id", "Name" from "DummyItem" order by 1')
    assert rows == [(1, "one"), (2, "two"), (3, "three")]
    lab.assert_same()


def test_readers_are_told_of_a_row_that_could_not_be_brought_back(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", policy="compensate")
    node = 'insert into "DummyNode" ("Id", "Name", "ParentId") values ({}, \'n\', {})'
    lab.write(node.format(1, "null"), node.format(2, 1))
    lab.quiet()
    child = lab.write('delete from "DummyNode" where "Id" = 2', mode="two-phase")
    lab.write('delete from "DummyNode" where "Id" = 1')
    lab.publish()
    while lab.network:
        lab.deliver(lab.network.pop(0))
    lab.run("coordinator", "select coordination.cancel(%s)", child)
    lab.settle()
    # Its parent is gone for good, so the child stays gone, at the Reader as well.
    assert lab.writer_state(child) == "Canceled"
    assert lab.rows("r1")["DummyNode"] == []
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    lab.assert_same()


def _two_columns(lab: Lab) -> None:
    """Give every database a table of two columns that are changed apart from each other."""
    policy = lab.value("writer", "select min(on_conflict) from coordination.entity")
    for part in ("writer", *lab.readers):
        lab.run(part, "create table pair (id bigint primary key, a text not null, b text not null)")
        options = f", null, 'replicate', '{policy}'" if part == "writer" else ""
        call = "track" if part == "writer" else "replicate"
        lab.run(part, f"select coordination.{call}('pair'{options})")


@pytest.mark.parametrize("policy", ["refuse", "compensate"])
def test_a_later_change_of_a_row_does_not_carry_vetoed_columns(
    open_a_lab: OpenLab, policy: str
) -> None:
    lab = open_a_lab("r1", "r2", policy=policy)
    _two_columns(lab)
    lab.write("insert into pair values (1, 'good', 'old'), (2, 'good', 'old')")
    lab.quiet()
    lab.run("r1", "alter table pair add check (a <> 'bad')")
    vetoed = lab.write(
        "update pair set a = 'bad' where id = 1",
        "insert into pair values (3, 'bad', 'old')",
        mode="two-phase",
    )
    # While the vote is out, others change another column, of the changed row and of the new one.
    lab.write("update pair set b = 'new'")
    lab.publish()
    seen = set()
    for _ in range(8):
        for reader in lab.readers:
            lab.pull(reader, page=1)
        if lab.network:
            lab.deliver(lab.network.pop(0))
        seen |= {row for reader in lab.readers for row in lab.run(reader, "select a from pair")}
    lab.run("r1", "alter table pair drop constraint pair_a_check")
    # One that is only made once the Readers have dropped the vetoed event.
    lab.write("update pair set b = 'newer'")
    lab.settle()
    for reader in lab.readers:
        found = lab.run(reader, "select * from pair order by id")
        assert (1, "good", "newer") in found
        assert (2, "good", "newer") in found
        # Under compensate the row that somebody changed stays, and Readers get it as it is.
        assert len(found) == (3 if policy == "compensate" else 2)
    assert seen == {("good",)}
    assert lab.writer_state(vetoed) == ("Canceling" if policy == "refuse" else "Canceled")


def test_a_two_phase_change_of_a_row_that_was_vetoed_is_vetoed(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1")
    _two_columns(lab)
    lab.run("r1", "alter table pair add check (a <> 'bad')")
    lab.write("insert into pair values (1, 'bad', 'old')", mode="two-phase")
    following = lab.write("update pair set b = 'new'", mode="two-phase")
    lab.publish()
    lab.pull("r1", page=1)
    lab.run("r1", "alter table pair drop constraint pair_a_check")
    lab.settle()
    assert lab.run("r1", "select * from pair") == []
    assert lab.run("writer", "select * from pair") == []
    assert lab.state(following) == "Canceled"


def test_compensating_keeps_only_the_rows_that_others_use(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", policy="compensate")
    lab.run("r1", 'alter table "DummyNode" add check ("Name" <> \'bad\')')
    vetoed = lab.write(
        'insert into "DummyNode" ("Id", "Name", "ParentId") values'
        " (1, 'bad', null), (2, 'bad', null), (3, 'bad', 2), (4, 'bad', 3), (5, 'bad', null)",
        mode="two-phase",
    )
    lab.write('insert into "DummyNode" ("Id", "Name", "ParentId") values (9, \'mine\', 3)')
    lab.run("r1", "update coordination.progress set max_attempts = 1000")
    lab.publish()
    while lab.pull("r1"):
        pass
    while lab.network:
        lab.deliver(lab.network.pop(0))
    lab.run("r1", 'alter table "DummyNode" drop constraint "DummyNode_Name_check"')
    lab.settle()
    assert lab.state(vetoed) == "Canceled"
    # 9 needs 3, and 3 needs 2; nobody uses the others.
    assert lab.run("writer", 'select "Id" from "DummyNode" order by 1') == [(2,), (3,), (9,)]
    lab.assert_same()


def test_a_refused_rollback_is_shown_until_it_is_done(open_a_lab: OpenLab) -> None:
    lab = _prepared(open_a_lab)
    event = lab.write('update "DummyItem" set "Name" = \'bad\'', mode="two-phase")
    lab.write('update "DummyItem" set "Name" = \'mine\' where "Id" = 1')
    lab.run("r1", "update coordination.progress set max_attempts = 1000")
    lab.settle()
    seen = "select state, reason, finished_at is null from coordination.events where event_id = %s"
    assert lab.writer_state(event) == "Canceling"
    [(state, reason, is_open)] = lab.run("coordinator", seen, event)
    assert (state, is_open) == ("Canceling", True)
    assert "1 of 3 rows of DummyItem were changed since" in reason
    # Mended, and tried again.
    lab.write('update "DummyItem" set "Name" = \'bad\' where "Id" = 1')
    lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.collect_decisions()
    lab.run("r1", 'alter table "DummyItem" drop constraint "DummyItem_Name_check"')
    lab.settle()
    assert lab.state(event) == lab.writer_state(event) == "Canceled"
    lab.assert_same()


def _cancel_before_votes(lab: Lab, event: int | None) -> None:
    """Cancel an event that the Coordinator has received, before its Reader has it."""
    lab.publish()
    for message in [one for one in lab.network if one.target == "coordinator"]:
        lab.network.remove(message)
        lab.deliver(message)
    lab.run("coordinator", "select coordination.cancel(%s, 'not wanted')", event)
    lab.collect_decisions()


def test_a_cancelled_event_without_effect_counts_as_restored(lab: Lab) -> None:
    event = lab.write(
        'insert into "DummyItem" ("Id", "Name") values (1, \'one\')',
        'delete from "DummyItem"',
        mode="two-phase",
    )
    _cancel_before_votes(lab, event)
    lab.quiet()
    assert lab.state(event) == lab.writer_state(event) == "Canceled"
    assert lab.run("r1", "select * from coordination.unrestored") == []


def test_tracking_an_altered_table_does_not_send_vetoed_columns(lab: Lab) -> None:
    lab.write(ADD)
    lab.quiet()
    event = lab.write('update "DummyItem" set "Name" = \'bad\' where "Id" = 1', mode="two-phase")
    _cancel_before_votes(lab, event)
    # Refused: somebody has changed the row since.
    lab.write('update "DummyItem" set "CorrelationId" = gen_random_uuid() where "Id" = 1')
    lab.quiet()
    assert lab.writer_state(event) == "Canceling"
    for part, call in (("r1", "replicate"), ("writer", "track")):
        lab.run(part, 'alter table "DummyItem" add column "Size" integer default 7')
        lab.run(part, f"select coordination.{call}('public.\"DummyItem\"')")
    lab.run("r1", 'update "DummyItem" set "Size" = null')
    lab.quiet()
    found = lab.run("r1", 'select "Name", "Size" from "DummyItem" order by "Id"')
    assert found == [("one", 7), ("two", 7), ("three", 7)]


def test_compensating_a_large_event_keeps_only_the_rows_that_others_use(
    open_a_lab: OpenLab,
) -> None:
    lab = open_a_lab("r1", policy="compensate")
    event = lab.write(
        'insert into "DummyNode" ("Id", "Name") select i, \'made\' from generate_series(1, 2000) i',
        mode="two-phase",
    )
    lab.write(
        'insert into "DummyNode" ("Id", "Name", "ParentId")'
        " select 10000 + i, 'mine', i from generate_series(1, 2000, 20) i"
    )
    _cancel_before_votes(lab, event)
    lab.quiet(page=1000)
    assert lab.writer_state(event) == "Canceled"
    assert lab.value("writer", 'select count(*) from "DummyNode"') == 200
    lab.assert_same()
