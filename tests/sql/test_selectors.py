"""Selectors, written as the documentation shows them, decide at post time."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.sql.calls import column, maintain, one, post, post_many, refused, rows, status, take

DONE = "(t.properties->'STATE')='DONE'"


def add(connection: Connection, name: str, selector: str, noindex: bool = False) -> None:
    connection.execute("select mbus.create_consumer('q', %s, %s, %s)", (name, selector, noindex))


def post_state(connection: Connection, number: int, state: str | None) -> str:
    return one(
        connection,
        "select mbus.post_q(hstore('n', %s), properties => hstore('STATE', %s))",
        str(number),
        state,
    )


@pytest.mark.parametrize("noindex", [False, True])
def test_a_selector_lets_only_its_messages_pass(bus: Connection, noindex: bool) -> None:
    add(bus, "done", DONE, noindex)
    for number, state in enumerate(["DONE", "OPEN", None, "DONE"], 1):
        post_state(bus, number, state)
    post(bus, 5)
    assert take(bus, whose="q_by_done") == ["1", "4"]
    assert take(bus) == ["1", "2", "3", "4", "5"]


def test_selectors_work_the_same_for_many_at_once(bus: Connection) -> None:
    add(bus, "done", DONE)
    add(bus, "open", "(t.properties->'STATE') is distinct from 'DONE' -- a remark")
    bus.execute(
        "select mbus.postn_q(array['n=>1', 'n=>2', 'n=>3']::hstore[],"
        " properties => array['STATE=>DONE', 'STATE=>OPEN', null]::hstore[])"
    )
    assert take(bus, whose="q_by_done") == ["1"]
    assert take(bus, whose="q_by_open") == ["2", "3"]
    assert take(bus) == ["1", "2", "3"]


def test_a_selector_sees_the_whole_message(bus: Connection) -> None:
    add(
        bus,
        "whole",
        "t.id > 0 and t.iid like 'q.%' and t.added is not null and t.headers->'trace' = 'x'"
        " and t.data->'n' = '1' and t.expires > t.added and t.delayed_until > t.added",
    )
    post(bus, 1, "trace=>x", delayed_until="2100-01-01", expires="2100-02-01")
    assert column(bus, "select recipients from mbus.delayed") == [
        column(bus, "select id from mbus.consumer order by id")
    ]


def test_a_selector_may_use_array_literals_and_braces(bus: Connection) -> None:
    add(bus, "listed", "t.data->'n' = any ('{queue}'::text[]) or t.data->'n' = '{position}'")
    post(bus, "queue")
    post(bus, "{position}")
    bus.execute("select mbus.postn_q(array['n=>queue', 'n=>\"{position}\"', 'n=>q']::hstore[])")
    assert take(bus, whose="q_by_listed") == ["queue", "{position}"] * 2


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_selectors_of_other_payloads_see_their_type(connection: Connection, payload: str) -> None:
    selector = {"jsonb": "t.data ? 'a'", "text": "t.data ~ '^a'", "bytea": "t.data = '\\x61'"}
    one_of = {"jsonb": '{"a": 1}', "text": "abc", "bytea": "\\x61"}
    other = {"jsonb": '{"b": 1}', "text": "xyz", "bytea": "\\x62"}
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    add(connection, "some", selector[payload])
    for text in (one_of[payload], other[payload]):
        connection.execute("select mbus.post('q', %s::text)", (text,))
    got = column(connection, "select data::text from mbus.consumen_q_by_some(9)")
    assert got == [one_of[payload]]


def test_a_message_that_nobody_wants_is_not_kept(bus: Connection) -> None:
    add(bus, "done", DONE)
    bus.execute("select mbus.drop_consumer('q', 'default')")
    iid = post_state(bus, 1, "OPEN")
    bus.execute("select mbus.postn_q(array['n=>2']::hstore[])")
    assert not one(bus, "select mbus.peek_q(%s)", iid)
    assert take(bus, whose="q_by_done") == []
    assert one(bus, 'select count(*) from mbus."ql$q$0"') == 0


def test_a_delayed_message_is_matched_when_it_is_posted(bus: Connection) -> None:
    add(bus, "done", DONE)
    bus.execute(
        "select mbus.post_q('n=>1', properties => 'STATE=>OPEN', delayed_until => '2100-01-01')"
    )
    bus.execute("update mbus.delayed set due_at = '2020-01-01'")
    maintain(bus)
    assert take(bus, whose="q_by_done") == []
    assert take(bus) == ["1"]


RAISING = "(t.data->'n')::integer > 1"


def test_a_selector_that_raises_sends_only_its_own_copy_to_the_dmq(bus: Connection) -> None:
    add(bus, "large", RAISING)
    iid = post(bus, "x")
    post(bus, 2)
    assert take(bus) == ["x", "2"]
    assert take(bus, whose="q_by_large") == ["2"]
    ((queue, consumer, dead, error, attempts, data),) = rows(
        bus, "select queue, consumer, iid, error, attempts, data from mbus.dead"
    )
    assert (queue, consumer, dead, attempts, data) == ("q", "large", iid, 0, '"n"=>"x"')
    assert error.startswith("selector: invalid input syntax for type integer")


def test_a_selector_that_raises_within_many_hurts_only_the_culprit(bus: Connection) -> None:
    add(bus, "large", RAISING)
    iids = one(bus, "select mbus.postn_q(array['n=>1', 'n=>x', 'n=>2', 'n=>3']::hstore[])")
    assert len(set(iids)) == 4
    assert take(bus) == ["1", "x", "2", "3"]
    assert take(bus, whose="q_by_large") == ["2", "3"]
    assert rows(bus, "select consumer, iid from mbus.dead") == [("large", iids[1])]


def test_a_copy_whose_selector_raised_can_be_redriven(bus: Connection) -> None:
    add(bus, "large", RAISING)
    post(bus, "x")
    assert one(bus, "select mbus.redrive('q', 'large')") == 1
    assert take(bus, whose="q_by_large") == ["x"]


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "t.properties->",
        "t.nothing = '1'",
        "u.data is null",
        "data is null",
        "(t.data->'n'",
        "t.data->'n'",
        "1",
        "no_such_function(t.data)",
        "true); select (true",
        "true); drop table mbus.dmq; select (true",
        "exists (delete from mbus.dmq returning 1)",
        "t.data = 'broken",
        "/* open",
        "count(*) > 1",
        "$1",
        "t.data->'n' = $function$x$function$",
        "1/0 = 1",
        "nowhere.f(t.id)",
        # What depends on the session, the time or on tables: static values only.
        "t.properties->'user_posted' = current_user",
        "t.properties->'user_posted' = session_user",
        "t.expires > now()",
        "t.data->'n' = current_setting('application_name')",
        "random() > 0.5",
        "pg_read_file('PG_VERSION') <> ''",
        "pg_sleep(0) is null",
        "lo_import('PG_VERSION') > 0",
        "exists (select from mbus.node)",
        "(select secret from mbus.node) <> ''",
        "t.data->'n' = any (array(select name from mbus.queue))",
    ],
)
def test_a_selector_that_cannot_work_is_refused(bus: Connection, selector: str) -> None:
    before = rows(bus, "select proname from pg_proc where pronamespace = 'mbus'::regnamespace")
    with refused(bus, "MB008"):
        add(bus, "never", selector)
    assert column(bus, "select consumer from mbus.consumers") == ["default"]
    after = rows(bus, "select proname from pg_proc where pronamespace = 'mbus'::regnamespace")
    assert sorted(before) == sorted(after)
    post(bus, 1)
    assert take(bus) == ["1"]


def test_a_selector_is_checked_whatever_the_session_is_set_to(bus: Connection) -> None:
    bus.execute("set local check_function_bodies = off")
    with refused(bus, "MB008"):
        add(bus, "never", "t.nothing = '1'")


def test_a_selector_may_contain_quotes(bus: Connection) -> None:
    add(bus, "odd", "t.data->'n' = $$it's$$ or t.data->'n' = 'it''s' or t.data->'n' = E'\\t'")
    post(bus, "it's")
    assert take(bus, whose="q_by_odd") == ["it's"]


def test_arrays_of_any_shape_are_posted_and_selected(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'odd', $$(t.data->'n')::int % 2 = 1$$)")
    for data in (
        "'[5:7]={n=>1,n=>2,n=>3}'::hstore[]",
        "array[array['n=>1', 'n=>2'], array['n=>3', 'n=>4']]::hstore[]",
        "'{}'::hstore[]",
        "array['n=>1', 'n=>2']::hstore[]",
    ):
        posted = one(bus, f"select cardinality(mbus.postn_q({data}))")
        everything = take(bus)
        assert len(everything) == posted
        assert take(bus, whose="q_by_odd") == [n for n in everything if int(n) % 2]


def test_a_selector_whose_function_asserts_does_not_fail_the_post(bus: Connection) -> None:
    bus.execute(
        "create function public.asserts(bigint) returns boolean language plpgsql"
        " immutable as $$begin assert false, 'no'; return true; end$$"
    )
    # A function of constants would be evaluated, and refused, when the consumer is created.
    bus.execute("select mbus.create_consumer('q', 'asserting', 'public.asserts(t.id)')")
    post(bus, 1)
    post_many(bus, 2)
    assert status(bus, "dmq", consumer="asserting") == 3
    assert len(take(bus)) == 3


@pytest.mark.parametrize(
    ("selector", "is_hit"),
    [
        ("t.headers->'destination' = 'q'", True),
        ("t.headers->'source_db' = 'DATABASE'", True),
        ("t.headers->'seenby' = '{DATABASE}'", True),
        ("t.headers->'enqueue_time' like '20%'", True),
        ("hstore(t)->'headers' like '%destination%'", True),
        ("not t.headers ? 'destination'", False),
    ],
)
def test_a_selector_sees_the_headers_that_a_consumer_gets(
    bus: Connection, selector: str, is_hit: bool
) -> None:
    selector = selector.replace("DATABASE", bus.info.dbname)
    add(bus, "second", selector)
    bus.execute("select mbus.create_queue('copies')")
    bus.execute("select mbus.create_trigger('q', 'copies', %s)", (selector,))
    post(bus, 1)
    post(bus, 2, "a=>b")
    post(bus, 3, delayed_until="2000-01-01")
    bus.execute("select mbus.postn_q(array['n=>4', 'n=>5']::hstore[])")
    expected = ["1", "2", "3", "4", "5"] if is_hit else []
    assert take(bus, whose="q_by_second") == expected
    assert take(bus, whose="copies_by_default") == expected


def test_many_at_once_see_them_too(bus: Connection) -> None:
    """Without a trigger they are matched set by set."""
    add(bus, "second", "t.headers->'destination' = 'q' and t.headers->'a' is distinct from 'b'")
    bus.execute(
        "select mbus.postn_q(array['n=>1', 'n=>2']::hstore[], array['a=>b', 'a=>c']::hstore[])"
    )
    assert take(bus, whose="q_by_second") == ["2"]
