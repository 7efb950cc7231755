"""How payloads are stored and travel: packed by statement."""

from __future__ import annotations

import psycopg
import pytest

from tests.integration.coordination.lab import Lab

pytestmark = pytest.mark.both_versions

# What a Writer of an earlier version stored: one payload for each changed row.
STORE_ROW_BY_ROW = """
with packed as (delete from coordination.payload p returning p)
insert into coordination.payload (event_id, sequence, id, type_id, after, before, changed)
select r.* from packed k cross join lateral coordination._unpack(k.p) r
"""
CHANGES = (
    'insert into "DummyItem" ("Id", "Name") select n, \'item \' || n from generate_series(1, 25) n',
    'update "DummyItem" set "Name" = \'other\' where "Id" between 5 and 20',
    # Two keys are gone, two are new, the others stay.
    'update "DummyItem" set "Name" = \'moved\','
    ' "Id" = case when "Id" > 23 then "Id" + 100 else "Id" end where "Id" > 10',
    'delete from "DummyItem" where "Id" < 5',
)


def _sizes(lab: Lab, event: int | None) -> list[int]:
    rows = lab.run(
        "writer",
        "select count from coordination.payload where event_id = %s order by sequence",
        event,
    )
    return [count for (count,) in rows]


def test_the_rows_of_a_statement_share_payloads_of_bounded_size(lab_of_each: Lab) -> None:
    lab = lab_of_each
    many = lab.write('insert into "DummyItem" ("Name") select n from generate_series(1, 2500) n')
    assert _sizes(lab, many) == [1000, 1000, 500]
    for part in ("writer", "r1"):
        lab.run(part, 'alter table "DummyItem" alter "Name" type text')
    large = lab.write('update "DummyItem" set "Name" = repeat(\'x\', 1500000) where "Id" <= 6')
    assert sum(_sizes(lab, large)) == 6
    assert len(_sizes(lab, large)) > 1
    assert lab.value("writer", 'select count(*) from coordination."AppEventPayload"') == 2506
    lab.quiet(page=700)
    lab.assert_same()


def test_every_cut_of_a_page_brings_each_row_once(lab_of_each: Lab) -> None:
    lab = lab_of_each
    lab.write(*CHANGES)
    lab.quiet(page=7)
    lab.assert_same()
    identities = lab.run(
        "writer",
        'select count(*), count(distinct "Id"), max("Sequence")'
        ' from coordination."AppEventPayload"',
    )
    # 25 inserts, 16 updates, 15 moved keys: 13 updates, 2 deletes and 2 inserts, 4 deletes.
    assert identities == [(62, 62, 62)]


@pytest.mark.parametrize("mode", ["replicate", "two-phase"])
def test_payloads_that_an_earlier_version_stored_are_applied(lab_of_each: Lab, mode: str) -> None:
    lab = lab_of_each
    event = lab.write(*CHANGES, mode=mode)
    lab.run("writer", STORE_ROW_BY_ROW)
    lab.quiet(page=7)
    assert lab.state(event) == "Committed"
    lab.assert_same()


def test_payloads_that_an_earlier_version_stored_are_rolled_back(lab_of_each: Lab) -> None:
    lab = lab_of_each
    lab.write('insert into "DummyItem" ("Id", "Name") select n, n from generate_series(3, 8) n')
    lab.quiet()
    before = lab.rows("writer")
    # A row that only this Reader has, and that it does not lose.
    lab.run("r1", 'create table kept (id bigint references "DummyItem")')
    lab.run("r1", "insert into kept values (3)")
    event = lab.write(*CHANGES[1:], mode="two-phase")
    lab.run("writer", STORE_ROW_BY_ROW)
    lab.settle()
    assert lab.state(event) == "Canceled"
    assert lab.rows("writer") == lab.rows("r1") == before


def test_a_page_of_another_version_is_refused(lab_of_each: Lab) -> None:
    with pytest.raises(psycopg.Error) as refused:
        lab_of_each.run("writer", "select coordination.pull(0, 0, 10, 1)")
    assert refused.value.sqlstate == "PC014"
    with pytest.raises(psycopg.Error) as refused:
        lab_of_each.stage("r1", '{"version": 1, "events": [], "payloads": []}')
    assert refused.value.sqlstate == "PC014"


def test_a_page_is_read_by_index_however_many_payloads_are_kept(lab_of_each: Lab) -> None:
    lab = lab_of_each
    lab.write('insert into "DummyItem" ("Name") values (\'first\')')
    lab.quiet()
    lab.run(
        "writer",
        'insert into coordination."AppEvent" ("Id", "IsPublished", "AppEventTypeId", "Position",'
        ' "PayloadCount", "Entities", "FinishedAt")'
        " select -n, true, 1, -n, 1, '{DummyItem}', now() from generate_series(1, 50000) n",
    )
    lab.run(
        "writer",
        "insert into coordination.payload (event_id, sequence, id, type_id, after)"
        " select -n, 1, -n, 1, '{\"Id\": 1}' from generate_series(1, 50000) n",
    )
    lab.run("writer", "analyze")
    scans = "select seq_scan from pg_stat_user_tables where relname in ('payload', 'AppEvent')"
    before = lab.run("writer", scans)
    lab.write('insert into "DummyItem" ("Name") values (\'second\')')
    lab.quiet(page=1000)
    lab.assert_same()
    lab.run("writer", "select pg_stat_force_next_flush()")
    assert lab.run("writer", scans) == before


def test_a_row_that_two_foreign_keys_change_arrives_as_it_ended(lab: Lab) -> None:
    # Without foreign keys at the Reader: they would repair there what was captured wrongly.
    keys = {"writer": " references p on delete set null", "r1": ""}
    for part, key in keys.items():
        lab.run(part, "create table p (id int primary key)")
        lab.run(part, f"create table c (id int primary key, a int{key}, b int{key}, d int{key})")
        for table in "pc":
            call = "track" if part == "writer" else "replicate"
            lab.run(part, f"select coordination.{call}('{table}')")
    lab.write(
        "insert into p select generate_series(1, 420)",
        "insert into c select g, g, g + 140, g + 280 from generate_series(1, 140) g",
    )
    lab.quiet(1000)
    lab.write("delete from p")
    lab.quiet(1000)
    rows = "select * from c order by id"
    assert lab.run("r1", rows) == lab.run("writer", rows)


def test_columns_in_another_order_get_their_own_values(lab: Lab) -> None:
    for part in ("writer", "r1"):
        lab.run(part, "create table o (id int primary key, a text, b text)")
        call = "track" if part == "writer" else "replicate"
        lab.run(part, f"select coordination.{call}('o')")
    lab.run("r1", "alter table o drop column a")
    lab.run("r1", "alter table o add column a text")
    # As an upgrade does, so that the statements are made again.
    lab.run("r1", "update coordination.entity set applied = null where role = 'replica'")
    lab.write("insert into o values (1, 'A', 'B')")
    lab.quiet()
    assert lab.run("r1", "select id, a, b from o") == [(1, "A", "B")]


def _register(lab: Lab, table: str) -> None:
    for part in ("writer", "r1"):
        call = "track" if part == "writer" else "replicate"
        lab.run(part, f"select coordination.{call}('{table}')")


@pytest.mark.parametrize("actions", [("cascade", "set null"), ("set null", "cascade")])
def test_a_row_that_one_foreign_key_deletes_and_another_changes_stays_deleted(
    lab: Lab, actions: tuple[str, str]
) -> None:
    # Without foreign keys at the Reader: they would repair there what was captured wrongly.
    columns = [f"references p on delete {action}" for action in actions]
    for part, keys in (("writer", columns), ("r1", ["", ""])):
        lab.run(part, "create table p (id int primary key)")
        lab.run(part, f"create table c (id int primary key, a int {keys[0]}, b int {keys[1]})")
    for table in "pc":
        _register(lab, table)
    lab.write(
        "insert into p select generate_series(1, 4)",
        "insert into c values (1, 1, 2), (2, 2, 1), (3, 3, 1), (4, 1, 3), (5, 3, 4)",
    )
    lab.quiet()
    lab.write("delete from p where id < 3")
    lab.quiet()
    rows = "select * from c order by id"
    assert lab.run("r1", rows) == lab.run("writer", rows)


def test_a_row_that_a_trigger_changes_again_arrives_as_it_ended(lab: Lab) -> None:
    for part in ("writer", "r1"):
        lab.run(part, "create table t (id int primary key, a int, b int)")
    _register(lab, "t")
    lab.run(
        "writer",
        "create function again() returns trigger language plpgsql as"
        " $$ begin if new.a = 9 then delete from t where id = new.id;"
        " else update t set b = new.a * 10 where id = new.id; end if; return null; end $$",
    )
    lab.run(
        "writer",
        "create trigger again after insert or update on t"
        " for each row when (pg_trigger_depth() = 0) execute function again()",
    )
    rows = "select * from t order by id"
    for change in (
        "insert into t select g, g from generate_series(1, 9) g",
        "update t set a = a + 1 where id between 3 and 8",
    ):
        lab.write(change)
        lab.quiet()
        assert lab.run("r1", rows) == lab.run("writer", rows) != []


def test_a_changed_key_beside_another_unique_column_is_applied_row_by_row(lab: Lab) -> None:
    for part in ("writer", "r1"):
        lab.run(part, 'create unique index on "DummyItem" ("Name")')
    lab.write("insert into \"DummyItem\" (\"Id\", \"Name\") values (1, 'a'), (2, 'b'), (3, 'c')")
    lab.quiet()
    # Names that change places are only applied row by row, in the Writer's order.
    event = lab.write(
        'update "DummyItem" set "Name" = \'spare\' where "Id" = 1',
        'update "DummyItem" set "Name" = \'a\' where "Id" = 2',
        'update "DummyItem" set "Name" = \'b\' where "Id" = 1',
        'update "DummyItem" set "Id" = 4 where "Id" = 3',
    )
    lab.quiet()
    assert lab.state(event) == "Committed"
    lab.assert_same()


def test_json_null_in_a_domain_is_not_the_null_of_sql(lab: Lab) -> None:
    for part in ("writer", "r1"):
        lab.run(part, "create domain note as jsonb")
        lab.run(part, "create domain remark as note")
        lab.run(part, "create table d (id int primary key, a note, b remark, c jsonb)")
    _register(lab, "d")
    lab.write("insert into d values (1, 'null', 'null', 'null'), (2, null, null, null)")
    lab.write("insert into d values (3, '{\"x\": 1.0}', '[1, 2]', '\"text\"')")
    lab.quiet()
    rows = "select id, a::text, b::text, c::text from d order by id"
    assert lab.run("r1", rows) == lab.run("writer", rows)
