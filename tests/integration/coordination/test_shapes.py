"""Tables of unusual shape: replicated, rolled back, or refused when they are registered."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from postroad.coordination import take_snapshot
from tests.integration.coordination.lab import Lab

IDENTITY = (
    "create table item (id bigint primary key, name text,"
    " number bigint generated always as identity)"
)
DEFERRABLE_KEY = "create table item (id bigint primary key deferrable, name text)"
DEFERRABLE_NAME = "create table item (id bigint primary key, name text unique deferrable)"
PLAIN = "create table item (id bigint primary key, name text, number bigint)"
PARTITIONED = """
create table item (id bigint, name text, body text, primary key (id, name))
partition by list (name);
create table item_a partition of item for values in ('a');
create table item_b partition of item for values in ('b');
"""
SWAP = "update item set name = case name when 'a' then 'b' else 'a' end"
REFUSE = """
create function refuse() returns trigger language plpgsql as
$$ begin raise exception 'items are not deleted'; end $$;
create trigger refuse before delete on item for each row execute function refuse();
"""


def _make(lab: Lab, at_writer: str, at_reader: str) -> None:
    lab.run("writer", at_writer)
    lab.run("r1", at_reader)
    lab.run("r1", "select coordination.replicate('item')")
    lab.run("writer", "select coordination.track('item')")


def _rows(lab: Lab, part: str) -> list[tuple[object, ...]]:
    return lab.run(part, "select * from item order by 1")


def _assert_same(lab: Lab) -> None:
    lab.settle()
    assert lab.run("r1", "select event_id, reason from coordination.staging") == []
    assert _rows(lab, "r1") == _rows(lab, "writer")


@pytest.mark.parametrize(("table", "code"), [(IDENTITY, "PC004"), (DEFERRABLE_KEY, "PC003")])
def test_a_reader_refuses_a_table_whose_rows_cannot_be_written(
    lab: Lab, table: str, code: str
) -> None:
    lab.run("r1", table)
    with pytest.raises(psycopg.Error) as refused:
        lab.run("r1", "select coordination.replicate('item')")
    assert refused.value.sqlstate == code
    assert refused.value.diag.message_hint


@pytest.mark.parametrize("table", [IDENTITY, DEFERRABLE_KEY, DEFERRABLE_NAME])
def test_a_vetoed_event_of_such_a_table_is_rolled_back(lab: Lab, table: str) -> None:
    _make(lab, table, PLAIN if table is IDENTITY else PLAIN.replace(", number bigint", ""))
    lab.write("insert into item (id, name) values (1, 'a'), (2, 'b'), (3, 'c')")
    _assert_same(lab)
    before = _rows(lab, "writer")
    lab.run("r1", "alter table item add check (name <> 'bad')")
    event = lab.write(
        "delete from item where id = 1",
        "update item set name = 'bad' where id = 2",
        "insert into item (id, name) values (4, 'd')",
        mode="two-phase",
    )
    lab.settle()
    assert lab.writer_state(event) == "Canceled"
    assert _rows(lab, "writer") == before
    _assert_same(lab)


def test_a_rollback_that_a_trigger_refuses_stops_no_other_decision(lab: Lab) -> None:
    _make(
        lab, DEFERRABLE_NAME, "create table item (id bigint primary key, name text check (id < 3))"
    )
    lab.run("writer", REFUSE)
    lab.write("insert into item values (1, 'a')")
    lab.settle()
    refused = lab.write("insert into item values (3, 'c')", mode="two-phase")
    passed = lab.write('insert into "DummyItem" ("Name") values (\'fine\')', mode="two-phase")
    lab.settle()
    assert (lab.writer_state(refused), lab.writer_state(passed)) == ("Canceling", "Committed")
    reason = lab.value(
        "coordinator", "select reason from coordination.events where event_id = %s", refused
    )
    assert "items are not deleted" in reason


def test_rows_change_their_partition(lab: Lab) -> None:
    _make(lab, PARTITIONED, PARTITIONED)
    # Values that are stored out of line and that an update does not change.
    lab.write(
        "insert into item select n, case when n % 2 = 0 then 'a' else 'b' end,"
        " (select string_agg(md5((n * 1000 + m)::text), '') from generate_series(1, 300) m)"
        " from generate_series(1, 20) n"
    )
    _assert_same(lab)
    lab.write(SWAP, "delete from item where id = 4")
    lab.write(
        "merge into item t using (values (5, 'x'), (6, null), (50, 'new')) v (id, body)"
        " on t.id = v.id when matched and v.body is null then delete"
        " when matched then update set body = v.body, name = 'b'"
        " when not matched then insert values (v.id, 'a', v.body)"
    )
    lab.write(
        "insert into item values (50, 'a', 'up'), (51, 'b', 'in')"
        " on conflict (id, name) do update set body = excluded.body"
    )
    _assert_same(lab)
    assert len(_rows(lab, "r1")) == 20
    lab.write("truncate item", "insert into item values (1, 'a', 'again')")
    _assert_same(lab)
    assert _rows(lab, "r1") == [(1, "a", "again")]


@pytest.mark.parametrize("is_cycle", [False, True])
def test_a_snapshot_may_bring_unique_values_that_moved_between_rows(
    lab: Lab, is_cycle: bool
) -> None:
    unique = "create table item (id bigint primary key, name text unique)"
    _make(lab, DEFERRABLE_NAME, unique)
    refers = "deferrable" if is_cycle else ""
    lab.run("r1", f"create table part (id bigint references item {refers})")
    lab.write("insert into item select n, 'name ' || n from generate_series(1, 9) n")
    _assert_same(lab)
    lab.run("r1", "insert into part values (1)")
    if is_cycle:
        lab.write("update item set name = 'name ' || 1 + id % 9")
    else:
        lab.write("update item set name = 'name ' || id + 1")
    asyncio.run(take_snapshot(lab.dsns["writer"], lab.dsns["r1"]))
    _assert_same(lab)
    assert lab.run("r1", "select id from part") == [(1,)]
