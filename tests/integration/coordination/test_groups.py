"""What was built on a cancelled event, and what refers to a row that is late, waits and passes."""

from __future__ import annotations

from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import Lab

NODE = 'insert into "DummyNode" ("Id", "Name", "ParentId") values ({}, \'n\', {})'
ITEM = 'insert into "DummyItem" ("Id", "Name") values ({}, \'{}\')'
REASONS = "select reason from coordination.staging where attempts > 0 or reason is not null"


def _tell_coordinator(lab: Lab) -> None:
    """Deliver what is under way to the Coordinator, and nothing to anybody else."""
    lab.publish()
    for message in [each for each in lab.network if each.target == "coordinator"]:
        lab.network.remove(message)
        lab.deliver(message)


def _cancel(lab: Lab, event: int | None) -> None:
    lab.run("coordinator", "select coordination.cancel(%s)", event)
    lab.collect_decisions()


def test_a_group_takes_in_what_precedes_in_every_entity_of_its_events(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", policy="compensate")
    ground = lab.write(NODE.format(1, "null"), mode="two-phase")
    built = lab.write(NODE.format(2, 1))
    # An event of both entities joins them: then one of items alone is in the way of the next.
    both = lab.write(ITEM.format(1, "one"), NODE.format(10, "null"))
    alone = lab.write('update "DummyItem" set "Name" = \'two\'')
    again = lab.write(ITEM.format(2, "two"), NODE.format(11, 10))
    _tell_coordinator(lab)
    _cancel(lab, ground)
    lab.settle()
    assert lab.writer_state(ground) == "Canceled"
    assert {lab.state(each) for each in (built, both, alone, again)} == {"Committed"}
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    lab.assert_same()


def test_a_group_passes_nothing_that_waits_before_it(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", policy="compensate")
    lab.run("r1", 'alter table "DummyItem" add check ("Name" <> \'bad\')')
    lab.write(ITEM.format(1, "bad"))
    ground = lab.write(NODE.format(1, "null"), mode="two-phase")
    lab.write(NODE.format(2, 1))
    # Behind the bad item, and before what makes up for the cancelled node.
    lab.write(ITEM.format(2, "good"), NODE.format(3, 2))
    _tell_coordinator(lab)
    _cancel(lab, ground)
    lab.settle()
    assert lab.rows("r1") == {"DummyItem": [], "DummyNode": []}
    lab.run("r1", 'alter table "DummyItem" drop constraint "DummyItem_Name_check"')
    for (event,) in lab.run(
        "r1", "select event_id from coordination.staging where parked_at is not null"
    ):
        lab.run("coordinator", "select coordination.retry(%s)", event)
    lab.settle()
    assert len(lab.rows("r1")["DummyNode"]) == 3
    lab.assert_same()


def test_waiting_for_a_vote_is_no_failed_try(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1", "r2", policy="compensate")
    ground = lab.write(NODE.format(1, "null"), mode="two-phase")
    built = lab.write(NODE.format(2, 1))
    undecided = lab.write('update "DummyNode" set "Name" = \'u\' where "Id" = 2', mode="two-phase")
    _tell_coordinator(lab)
    _cancel(lab, ground)
    while lab.network:
        lab.deliver(lab.network.pop(0))
    # What makes up for it stands behind the event that nobody can vote on before.
    lab.publish()
    lab.pull("r1")
    lab.network.clear()
    for _ in range(12):
        lab.tick("1 second")
        lab.attend("r1")
    waiting = lab.run(
        "r1", "select attempts, parked_at, reason from coordination.staging order by position"
    )
    assert waiting[0][:2] == (0, None)
    assert f"waits for event {undecided}" in waiting[0][2]
    lab.network.clear()
    lab.tick("1 minute")
    lab.settle()
    assert lab.state(built) == "Committed"
    assert lab.state(undecided) == "Canceled"
    lab.assert_same()


def test_an_event_may_fail_as_often_as_it_is_allowed_to(open_a_lab: OpenLab) -> None:
    lab = open_a_lab("r1")
    lab.run("r1", "update coordination.progress set max_attempts = 1000000")
    lab.run("r1", 'alter table "DummyItem" add check ("Name" <> \'bad\')')
    lab.write(ITEM.format(1, "bad"))
    lab.publish()
    lab.pull("r1")
    lab.run("r1", "update coordination.staging set attempts = 900, next_try_at = null")
    lab.attend("r1")
    assert lab.value("r1", "select attempts from coordination.staging") == 901


def _family(open_a_lab: OpenLab, *readers: str) -> Lab:
    lab = open_a_lab(*readers)
    for part in ("writer", *readers):
        lab.run(
            part,
            "create table owner (id int primary key, name text);"
            " create table pet (id int primary key, owner int references owner)",
        )
        for table in ("owner", "pet"):
            call = "track" if part == "writer" else "replicate"
            lab.run(part, f"select coordination.{call}(%s)", table)
    return lab


def test_a_child_waits_for_the_event_of_its_parent(open_a_lab: OpenLab) -> None:
    lab = _family(open_a_lab, "r1", "r2")
    parent = lab.write("insert into owner values (1, 'late')", mode="two-phase")
    children = [
        lab.write("insert into pet values (1, 1)"),
        lab.write("insert into pet values (2, 1)", mode="two-phase"),
    ]
    other = lab.write(ITEM.format(1, "one"))
    lab.publish()
    lab.pull("r1")
    # The other reader takes its time: nothing is decided.
    for _ in range(8):
        lab.tick("1 second")
        lab.attend("r1")
    assert lab.run("r1", REASONS) == []
    assert lab.value("r1", 'select count(*) from "DummyItem"') == 1
    lab.settle()
    assert {lab.state(each) for each in (parent, *children, other)} == {"Committed"}
    for reader in lab.readers:
        assert lab.run(reader, "select * from pet order by 1") == [(1, 1), (2, 1)]


def test_a_parent_that_goes_waits_for_its_child_to_go(open_a_lab: OpenLab) -> None:
    lab = _family(open_a_lab, "r1")
    lab.write("insert into owner values (1, 'one')")
    lab.write("insert into pet values (1, 1)")
    lab.quiet()
    child = lab.write("delete from pet", mode="two-phase")
    parent = lab.write("delete from owner")
    lab.publish()
    lab.pull("r1")
    for _ in range(8):
        lab.tick("1 second")
        lab.attend("r1")
    assert lab.run("r1", REASONS) == []
    lab.settle()
    assert lab.state(child) == lab.state(parent) == "Committed"
    assert lab.value("r1", "select count(*) from owner") == 0


def test_a_reference_that_cannot_be_deferred_does_not_keep_a_group_apart(
    open_a_lab: OpenLab,
) -> None:
    lab = open_a_lab("r1", policy="compensate")
    for part in ("writer", "r1"):
        lab.run(
            part,
            'alter table "DummyNode" drop constraint "DummyNode_ParentId_fkey",'
            ' add foreign key ("ParentId") references "DummyNode"',
        )
    lab.write(NODE.format(5, "null"), NODE.format(6, 5))
    lab.quiet()
    ground = lab.write(NODE.format(1, "null"), mode="two-phase")
    # Applied at once, the parent must not go before its child has another one.
    built = lab.write(
        'update "DummyNode" set "ParentId" = 1 where "Id" = 6',
        'delete from "DummyNode" where "Id" = 5',
    )
    _tell_coordinator(lab)
    _cancel(lab, ground)
    lab.settle()
    assert lab.state(built) == "Committed"
    lab.assert_same()


def _chain(open_a_lab: OpenLab) -> Lab:
    """Entities a, b and c, each referring to the one before it."""
    lab = open_a_lab("r1", policy="compensate")
    for part, call in (("writer", "track"), ("r1", "replicate")):
        lab.run(
            part,
            "create table a (id int primary key, up int references a deferrable);"
            " create table b (id int primary key, a int references a);"
            " create table c (id int primary key, b int references b)",
        )
        for table in ("a", "b", "c"):
            options = ", null, 'replicate', 'compensate'" if call == "track" else ""
            lab.run(part, f"select coordination.{call}('{table}'{options})")
    lab.write(
        "insert into a values (100)", "insert into b values (1, 100)", "insert into c values (1, 1)"
    )
    lab.quiet()
    return lab


def test_a_group_takes_in_the_relatives_of_relatives(open_a_lab: OpenLab) -> None:
    lab = _chain(open_a_lab)
    ground = lab.write("insert into a values (1, null)", mode="two-phase")
    events = [
        lab.write("insert into a values (2, 1)"),
        lab.write("insert into b values (2, 100)"),
        # The parent in b may go because its child in c went before.
        lab.write("delete from c where id = 1"),
        lab.write("delete from b where id = 1"),
    ]
    _tell_coordinator(lab)
    _cancel(lab, ground)
    lab.settle()
    assert lab.value("r1", "select count(*) from coordination.staging") == 0
    assert {lab.state(each) for each in events} == {"Committed"}
    for table in ("a", "b", "c"):
        rows = f"select * from {table} order by 1"
        assert lab.run("r1", rows) == lab.run("writer", rows)
