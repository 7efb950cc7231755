"""Triggers copy what is posted to a queue into another one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, maintain, one, post, post_many, refused, rows, shift_clock, take

pytestmark = pytest.mark.both_versions

DONE = "(t.properties->'STATE')='DONE'"


@pytest.fixture
def pair(bus: Connection) -> Connection:
    """Give queues q and r, both hstore."""
    bus.execute("select mbus.create_queue('r')")
    return bus


def follow(
    connection: Connection, source: str, destination: str, selector: str | None = None
) -> None:
    connection.execute("select mbus.create_trigger(%s, %s, %s)", (source, destination, selector))


def take_r(connection: Connection) -> list[str]:
    return take(connection, whose="r_by_default")


def test_single_and_bulk_posts_are_copied(pair: Connection) -> None:
    post(pair, "before")
    follow(pair, "q", "r")
    post(pair, "one")
    post(pair, "two", "trace=>x")
    post_many(pair, 3)
    pair.execute("select mbus.post('q', 'n=>three')")
    assert take_r(pair) == ["one", "two", "1", "2", "3", "three"]
    assert take(pair) == ["before", "one", "two", "1", "2", "3", "three"]


def test_the_selector_decides(pair: Connection) -> None:
    follow(pair, "q", "r", DONE + " -- a remark")
    pair.execute(
        "select mbus.postn_q(array['n=>1', 'n=>2', 'n=>3']::hstore[],"
        " properties => array['STATE=>DONE', 'STATE=>OPEN', null]::hstore[])"
    )
    assert take_r(pair) == ["1"]
    assert take(pair) == ["1", "2", "3"]


def test_the_copy_keeps_what_it_was(pair: Connection) -> None:
    follow(pair, "q", "r")
    iid = one(
        pair,
        "select mbus.post_q('n=>1', 'trace=>x,dedup_key=>k', 'p=>1', mbus.now() + '1 hour',"
        " mbus.now() + '3 hours')",
    )
    assert take_r(pair) == []
    shift_clock(pair, timedelta(hours=2))
    ((q_row, r_row),) = rows(
        pair,
        "select q, r from mbus.consume('q') q, mbus.consume('r') r"
        " where q.delayed_until = r.delayed_until and q.expires = r.expires"
        " and q.properties = r.properties and q.data = r.data and q.iid <> r.iid"
        " and r.headers->'trace' = 'x' and r.headers->'origin_iid' = q.iid"
        " and r.headers->'enqueue_time' = q.headers->'enqueue_time'",
    )
    assert iid in q_row
    assert "r." in r_row


def test_an_expired_copy_is_not_delivered(pair: Connection) -> None:
    follow(pair, "q", "r")
    pair.execute("select mbus.post_q('n=>1', expires => mbus.now() + '1 minute')")
    shift_clock(pair, timedelta(hours=1))
    assert take_r(pair) == []


def test_priority_and_group_of_the_copy_count(pair: Connection) -> None:
    follow(pair, "q", "r")
    post(pair, "normal")
    post(pair, "high", "priority=>high")
    post(pair, "a1", "group=>a")
    post(pair, "a2", "group=>a")
    assert take_r(pair) == ["high", "normal", "a1"]


def test_a_repetition_is_not_copied(pair: Connection) -> None:
    follow(pair, "q", "r")
    for _ in range(3):
        post(pair, 1, "dedup_key=>k")
        post(pair, 2, "dedup_key=>l", delayed_until="2100-01-01")
    assert take_r(pair) == ["1"]
    assert column(
        pair,
        "select data_hstore->'n' from mbus.delayed d join mbus.queue q on q.id = d.queue_id"
        " where q.name = 'r'",
    ) == ["2"]


def test_a_retry_is_not_copied_again(pair: Connection) -> None:
    follow(pair, "q", "r")
    post(pair, 1)
    ((iid, token),) = rows(pair, "select iid, token from mbus.lease_q_by_default()")
    pair.execute("select mbus.nack(%s, %s, '1 second')", (iid, token))
    pair.execute("update mbus.delayed set due_at = '2020-01-01'")
    maintain(pair)
    assert take(pair) == ["1"]
    assert take_r(pair) == ["1"]


def test_a_chain_of_triggers_names_the_first_message(pair: Connection) -> None:
    pair.execute("select mbus.create_queue('s')")
    follow(pair, "q", "r")
    follow(pair, "r", "s")
    iid = post(pair, 1)
    assert one(pair, "select headers->'origin_iid' from mbus.consume('s')") == iid
    assert take_r(pair) == ["1"]


def test_fan_out_and_triggers_go_together(pair: Connection) -> None:
    pair.execute("select mbus.create_consumer('q', 'other')")
    follow(pair, "q", "r")
    pair.execute("select mbus.create_consumer('r', 'done', %s)", (DONE,))
    post(pair, 1)
    pair.execute("select mbus.post_q('n=>2', properties => 'STATE=>DONE')")
    assert take(pair) == take(pair, whose="q_by_other") == take_r(pair) == ["1", "2"]
    assert take(pair, whose="r_by_done") == ["2"]


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_other_payloads_are_copied(connection: Connection, payload: str) -> None:
    for name in ("q", "r"):
        connection.execute("select mbus.create_queue(%s, payload => %s::regtype)", (name, payload))
    follow(connection, "q", "r", "t.data is not null")
    text = {"jsonb": '{"a": 1}', "text": "abc", "bytea": "\\x61"}[payload]
    connection.execute("select mbus.post('q', %s::text)", (text,))
    got = column(connection, "select data::text from mbus.consumen_r_by_default(9)")
    assert got == [text]


def test_a_selector_that_raises_is_seen_in_the_dmq_of_the_destination(pair: Connection) -> None:
    follow(pair, "q", "r", "(t.data->'n')::integer > 1")
    iid = post(pair, "x")
    post(pair, 2)
    assert take(pair) == ["x", "2"]
    assert take_r(pair) == ["2"]
    ((queue, consumer, error, headers),) = rows(
        pair, "select queue, consumer, error, headers->'origin_iid' from mbus.dead"
    )
    assert (queue, consumer, headers) == ("r", "default", iid)
    assert error.startswith("selector of the trigger from q: invalid input syntax")
    assert one(pair, "select mbus.redrive('r')") == 1
    assert take_r(pair) == ["x"]


def test_loops_are_refused(pair: Connection) -> None:
    pair.execute("select mbus.create_queue('s')")
    follow(pair, "q", "r")
    follow(pair, "r", "s")
    for source, destination in [("q", "q"), ("r", "q"), ("s", "q"), ("s", "r"), ("s", "s")]:
        with refused(pair, "MB020"):
            follow(pair, source, destination)
    follow(pair, "q", "s")
    post(pair, 1)
    assert take(pair, whose="s_by_default") == ["1", "1"]


def test_bad_input_is_refused_and_changes_nothing(pair: Connection) -> None:
    pair.execute("select mbus.create_queue('j', payload => 'jsonb')")
    follow(pair, "q", "r", DONE)
    before = rows(pair, "select * from mbus.followers")
    for source, destination, selector, code in [
        ("none", "r", None, "MB001"),
        ("r", "none", None, "MB001"),
        (None, "r", None, "MB001"),
        ("q", "j", None, "MB011"),
        ("q", "r", None, "MB030"),
        ("r", "none", "t.nothing", "MB001"),
    ]:
        with refused(pair, code):
            pair.execute("select mbus.create_trigger(%s, %s, %s)", (source, destination, selector))
    pair.execute("select mbus.create_queue('s')")
    for selector in ("t.nothing", "", "true); drop table mbus.dmq; select (true", "1/0 = 1"):
        with refused(pair, "MB008"):
            follow(pair, "q", "s", selector)
    for source, destination, code in [("r", "q", "MB031"), ("none", "r", "MB001")]:
        with refused(pair, code):
            pair.execute("select mbus.drop_trigger(%s, %s)", (source, destination))
    assert rows(pair, "select * from mbus.followers") == before


def functions(connection: Connection) -> list[tuple[str, str]]:
    return rows(
        connection,
        "select proname, prosrc from pg_proc where pronamespace = 'mbus'::regnamespace"
        " and proname ~ '^_?(post|postn|put)_q$' order by 1",
    )


def test_a_queue_without_followers_pays_nothing(pair: Connection) -> None:
    before = functions(pair)
    follow(pair, "q", "r")
    assert functions(pair) != before
    pair.execute("select mbus.drop_trigger('q', 'r')")
    assert functions(pair) == before
    post(pair, 1)
    assert take_r(pair) == []
    assert rows(pair, "select * from mbus.followers") == []


def test_dropping_a_queue_drops_its_triggers(pair: Connection) -> None:
    pair.execute("select mbus.create_queue('s')")
    follow(pair, "q", "r")
    follow(pair, "r", "s")
    pair.execute("select mbus.drop_queue('r')")
    assert rows(pair, "select * from mbus.followers") == []
    post(pair, 1)
    post_many(pair, 2)
    assert take(pair) == ["1", "1", "2"]
    pair.execute("select mbus.create_queue('r')")
    post(pair, 2)
    assert take_r(pair) == []


def test_a_selector_is_the_same_when_the_functions_are_made_anew(pair: Connection) -> None:
    follow(pair, "q", "r", DONE)
    pair.execute("select mbus.create_queue('q')")
    pair.execute("select mbus.create_consumer('q', 'more')")
    pair.execute("select mbus.post_q('n=>1', properties => 'STATE=>DONE')")
    post(pair, 2)
    assert take_r(pair) == ["1"]


def test_the_copy_belongs_to_the_producers_transaction(live: str, connect: Connect) -> None:
    producer, consumer = connect(live), connect(live, autocommit=True)
    consumer.execute("select mbus.create_queue('r')")
    follow(consumer, "q", "r")
    post(producer, 1)
    assert take_r(consumer) == []
    producer.rollback()
    post(producer, 2)
    producer.commit()
    assert take_r(consumer) == ["2"]
    assert take(consumer) == ["2"]
