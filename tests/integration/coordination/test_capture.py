"""What the Writer writes down: every change, by whomever, in the transaction that makes it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, MetaData, Table, create_engine, insert, select, text, update
from sqlalchemy.orm import Session

from postroad import coordination
from postroad.cli.components import SCHEMAS
from postroad.coordination.models import DummyItem, DummyNode, SampleBase
from tests.fixtures.postgres import Connect

pytestmark = pytest.mark.both_versions

EVENTS = (
    'select e."Id", t."Name",'
    ' (select count(*) from coordination.payload_row p where p.event_id = e."Id")'
    ' from coordination."AppEvent" e'
    ' join coordination."AppEventType" t on t."Id" = e."AppEventTypeId"'
    ' order by e."Id"'
)


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(coordination.engine_url(database))
    SampleBase.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def writer(engine: Engine) -> coordination.EntityWriter:
    return coordination.writer(engine).track(DummyItem, DummyNode)


def _run(engine: Engine, query: str, **parameters: object) -> list[Any]:
    with engine.begin() as connection:
        result = connection.execute(text(query), parameters)
        return [tuple(row) for row in result] if result.returns_rows else []


def _lose_a_savepoint(session: Session) -> None:
    savepoint = session.begin_nested()
    session.add(DummyItem(name="lost"))
    session.flush()
    savepoint.rollback()


def test_all_flushes_of_a_transaction_are_one_event_with_both_images(
    engine: Engine, writer: coordination.EntityWriter
) -> None:
    with Session(engine) as session:
        root = DummyNode(name="root")
        session.add_all([DummyItem(name="one"), root])
        session.flush()
        session.add(DummyNode(name="child", parent_id=root.id))
        root.name = "the root"
        event = writer.current_event(session)
        session.commit()
    assert _run(engine, EVENTS) == [(event, "DummyItem.Insert", 4)]
    after = _run(
        engine,
        'select "Sequence", "Operation", "Name", "ParentId", "Present"'
        ' from coordination."AppEventCommitForDummyNode" order by "Sequence"',
    )
    everything = ["Id", "CorrelationId", "Name", "ParentId"]
    operations = sorted((operation, name) for _, operation, name, _, _ in after)
    assert operations == [("Insert", "child"), ("Insert", "root"), ("Update", "the root")]
    assert all(present == everything for *_, present in after)
    before = _run(
        engine,
        'select "Operation", "Name", "ParentId", "Present"'
        ' from coordination."AppEventRollbackForDummyNode" order by "Operation", "Sequence"',
    )
    # Null told apart from absent: an insert has no before-image at all.
    assert [(row[0], row[3]) for row in before] == [
        ("Insert", []),
        ("Insert", []),
        ("Update", everything),
    ]
    assert before[2][1:3] == ("root", None)


def test_what_rolls_back_leaves_nothing_and_a_savepoint_only_what_is_kept(
    engine: Engine, writer: coordination.EntityWriter
) -> None:
    with Session(engine) as session:
        session.add(DummyItem(name="gone"))
        session.flush()
        session.rollback()
    with Session(engine) as session:
        session.add(DummyItem(name="kept"))
        session.flush()
        _lose_a_savepoint(session)
        session.add(DummyItem(name="kept, too"))
        session.commit()
    with Session(engine) as session:
        # Here the first change of all is taken back.
        _lose_a_savepoint(session)
        session.add(DummyItem(name="alone"))
        session.commit()
    names = _run(
        engine,
        'select "AppEventId", "Sequence", "Name" from coordination."AppEventCommitForDummyItem"'
        " order by 1, 2",
    )
    assert [(sequence, name) for _, sequence, name in names] == [
        (1, "kept"),
        (2, "kept, too"),
        (1, "alone"),
    ]
    assert len(_run(engine, EVENTS)) == 2


def test_bulk_statements_raw_sql_and_other_programs_are_caught(
    engine: Engine, writer: coordination.EntityWriter, database: str, connect: Connect
) -> None:
    with Session(engine) as session:
        session.execute(
            insert(DummyItem),
            [{"name": f"bulk {n}", "correlation_id": uuid.uuid4()} for n in range(20)],
        )
        session.execute(update(DummyItem).where(DummyItem.id <= 5).values(name="changed"))
        session.commit()
    other = connect(database, autocommit=True)
    other.execute('update "DummyItem" set "Name" = "Name"')  # changes nothing, writes nothing
    other.execute('update "DummyItem" set "Id" = "Id" + 100 where "Id" <= 2')
    other.execute(
        'insert into "DummyItem" ("Id", "CorrelationId", "Name") overriding system value'
        " values (101, gen_random_uuid(), 'again'), (500, gen_random_uuid(), 'new')"
        ' on conflict ("Id") do update set "Name" = excluded."Name"'
    )
    other.execute('truncate "DummyItem"')
    found = _run(
        engine,
        'select p.event_id, t."Name", count(*) from coordination.payload_row p'
        ' join coordination."AppEventType" t on t."Id" = p.type_id group by 1, 2 order by 1, 2',
    )
    counts = [(name.removeprefix("DummyItem."), count) for _, name, count in found]
    assert counts == [
        ("Insert", 20),
        ("Update", 5),
        ("Delete", 2),  # a changed key is one row gone and another come
        ("Insert", 2),
        ("Insert", 1),
        ("Update", 1),
        ("Delete", 21),
    ]


def test_an_ordinary_user_needs_no_right_in_the_schema(
    engine: Engine, writer: coordination.EntityWriter, database: str
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute('grant insert on "DummyItem" to pg_monitor')
        connection.execute("set role pg_monitor")
        connection.execute(
            'insert into "DummyItem" ("CorrelationId", "Name") values (gen_random_uuid(), \'x\')'
        )
    assert len(_run(engine, EVENTS)) == 1


def test_the_mode_comes_from_the_entity_or_from_the_transaction(
    engine: Engine, writer: coordination.EntityWriter
) -> None:
    writer.track(DummyNode, mode="two-phase")
    with Session(engine) as session:
        session.add(DummyItem(name="plain"))
        session.commit()
        session.add(DummyItem(name="first"))
        session.flush()
        session.add(DummyNode(name="makes it two-phase"))
        session.commit()
        writer.set_mode(session, "replicate")
        session.add(DummyNode(name="asked for"))
        session.commit()
    modes = _run(engine, 'select "Mode" from coordination."AppEvent" order by "Id"')
    assert modes == [("replicate",), ("two-phase",), ("replicate",)]
    with Session(engine) as session, pytest.raises(coordination.InvalidChoice):
        writer.set_mode(session, "three-phase")  # type: ignore[arg-type]


def test_events_follow_the_order_of_commits_and_not_of_ids(
    engine: Engine, writer: coordination.EntityWriter, database: str, connect: Connect
) -> None:
    late, early = connect(database), connect(database)
    change = 'insert into "DummyItem" ("CorrelationId", "Name") values (gen_random_uuid(), %s)'
    late.execute(change, ("began first",))
    early.execute(change, ("committed first",))
    early.commit()
    _run(engine, "select coordination.publish()")
    late.commit()
    _run(engine, "select coordination.publish()")
    order = _run(
        engine,
        'select c."Name" from coordination."AppEvent" e'
        ' join coordination."AppEventCommitForDummyItem" c on c."AppEventId" = e."Id"'
        ' order by e."Position"',
    )
    assert order == [("committed first",), ("began first",)]


def test_one_who_waited_for_anothers_row_comes_after_it(
    engine: Engine,
    writer: coordination.EntityWriter,
    database: str,
    connect: Connect,
    in_thread: Any,
) -> None:
    _run(
        engine,
        'insert into "DummyItem" ("CorrelationId", "Name") values (gen_random_uuid(), \'0\')',
    )
    _run(engine, "select coordination.publish()")
    first, second = connect(database), connect(database)
    # The second one draws its event before, and changes the row after the first.
    second.execute(
        'insert into "DummyNode" ("CorrelationId", "Name") values (gen_random_uuid(), \'n\')'
    )
    first.execute('update "DummyItem" set "Name" = \'first\'')
    first.commit()
    second.execute('update "DummyItem" set "Name" = \'second\'')
    second.commit()
    _run(engine, "select coordination.publish()")
    order = _run(
        engine,
        'select c."Name" from coordination."AppEvent" e'
        ' join coordination."AppEventCommitForDummyItem" c on c."AppEventId" = e."Id"'
        ' order by e."Position"',
    )
    assert order == [("0",), ("first",), ("second",)]


def test_two_publishers_never_publish_the_same_event(
    engine: Engine, writer: coordination.EntityWriter, database: str, connect: Connect
) -> None:
    _run(
        engine,
        'insert into "DummyItem" ("CorrelationId", "Name") values (gen_random_uuid(), \'x\')',
    )
    one, other = connect(database), connect(database)
    assert one.execute("select coordination.publish()").fetchone() == (1,)
    # The first has not committed: the second leaves at once.
    assert other.execute("select coordination.publish()").fetchone() == (0,)
    other.rollback()
    one.rollback()
    assert other.execute("select coordination.publish()").fetchone() == (1,)
    other.commit()
    assert one.execute("select coordination.publish()").fetchone() == (0,)
    one.commit()
    messages = _run(engine, "select count(*) from mbus.consumen_co_events_by_default(10)")
    assert messages == [(1,)]


ODD = """
create type mood as enum ('sad', 'glad');
create table odd (
  a int, b text, n numeric(12, 4), f float8, t timestamptz, d date, i interval, j jsonb, k json,
  m mood,
  l text[], r int4range, y bytea, h hstore, u uuid, c char(5), o bool, x point,
  g int generated always as (a * 2) stored, primary key (b, a))
"""


EXACT = """
create type pair as (f double precision, t text[]);
create table exact (a int primary key, f double precision, r real, fs double precision[],
  bounds integer[], js jsonb[], p pair, ps pair[], ts text[]);
"""


def test_values_of_every_kind_travel_unharmed(server: Any, database: str, connect: Connect) -> None:
    with server.clone(*SCHEMAS) as replica:
        source, target = connect(database, autocommit=True), connect(replica, autocommit=True)
        for session, role in ((source, "writer"), (target, "reader")):
            session.execute("select coordination.become(%s, 'odd')", (role,))
            session.execute(ODD)
        source.execute("select coordination.track('odd')")
        target.execute("select coordination.replicate('odd')")
        source.execute(
            """insert into odd values
            (1, 'x', 12345678.1234, 'NaN', '2020-02-29 12:00:00.123456+03', 'infinity',
             '1 mon -3 days', 'null', '{"b": 1, "a": [1.50]}', 'glad', '{a,null,"b,\\"c"}', '[1,5)',
             '\\x00ff', 'a=>1, b=>null', gen_random_uuid(), 'ab', true, '(1,2)'),
            (2, 'ключ', null, 1e-300, null, null, null, null, null, null, '{}',
             null, null, null, null, null, null, null)"""
        )
        for session in (source, target):
            session.execute(EXACT)
        source.execute("select coordination.track('exact')")
        target.execute("select coordination.replicate('exact')")
        source.execute(
            """insert into exact values (1, '-0', '-0', '{1.5,-0,NaN}', '[0:1]={7,8}',
              '{"{\\"a\\": 1.50}",null,"null"}', '(-0,"[2:3]={x,y}")', '{"(-0,)"}', '{-0,1.10}')"""
        )
        source.execute("select coordination.publish()")
        page = source.execute(
            "select page::text, afters, befores from coordination.pull(0, 0, 10)"
        ).fetchone()
        target.execute("select coordination.stage(%s::jsonb, %s, %s)", page)
        look = "select e::text from exact e"
        assert source.execute(look).fetchall() == target.execute(look).fetchall()
        look = "select o::text, j is null from odd o order by a"
        assert source.execute(look).fetchall() == target.execute(look).fetchall()
        assert target.execute("select count(*) from odd").fetchone() == (2,)


def test_bad_registrations_are_refused_with_a_reason(
    engine: Engine, writer: coordination.EntityWriter, database: str
) -> None:
    with engine.begin() as connection:
        connection.execute(text("create table keyless (a int)"))
        connection.execute(text(f'create table "{"n" * 50}" (a int primary key)'))
        connection.execute(text('create table taken (a int primary key, "Sequence" int)'))
    known = MetaData()
    known.reflect(engine)
    cases: list[tuple[Table, type[Exception]]] = [
        (known.tables["keyless"], coordination.KeyMissing),
        (known.tables["n" * 50], coordination.InvalidEntityName),
        (known.tables["taken"], coordination.ColumnNameTaken),
        (Table("absent", MetaData()), coordination.EntityNotFound),
    ]
    for table, error in cases:
        with pytest.raises(error) as refused:
            writer.track(table)
        assert refused.value.hint
    with pytest.raises(coordination.RoleTaken):
        coordination.reader(engine, "lists")
    with pytest.raises(coordination.InvalidEntityName):
        coordination.reader(engine, "no such name")
    assert _run(engine, "select count(*) from coordination.entity") == [(2,)]
    with Session(engine) as session:
        assert session.execute(select(DummyItem)).all() == []
