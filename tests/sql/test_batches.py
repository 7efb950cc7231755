"""batch_<q>_by_<c> and leasen_<q>_by_<c>: the client adds the headers that all messages have."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.sql.calls import column, one, post, post_many, rows

SHAPES = {
    "direct": "select 1",
    "fanout": "select mbus.create_consumer('q', 'second')",
    "grouped": "select mbus.post_q('n=>0', 'group=>a')",
    "waited": "select mbus.post_q('n=>0', hstore('consume_after', mbus.post_q('n=>0')))",
}
# As consumen_<q>_by_<c> and lease_<q>_by_<c> return them.
WHOLE = "coalesce(headers, constants::hstore || hstore('enqueue_time', added::text))::text"


@pytest.fixture(params=SHAPES)
def shaped(bus: Connection, request: pytest.FixtureRequest) -> Connection:
    bus.execute(SHAPES[request.param].encode())
    return bus


@pytest.mark.parametrize(
    ("quick", "whole"),
    [
        ("batch_q_by_default(9)", "consumen_q_by_default(9)"),
        ("leasen_q_by_default(9, '1 minute')", "lease_q_by_default(9, '1 minute')"),
    ],
)
def test_headers_are_the_same_once_the_client_has_added_the_usual_ones(
    shaped: Connection, quick: str, whole: str
) -> None:
    post(shaped, 1)
    post(shaped, 2, "colour=>red")
    shaped.execute("select mbus.reject('q', 'default', %s, '0')", (post(shaped, 3),))
    shaped.execute("set local timezone = 'Asia/Kolkata'")
    columns = "id, added, iid, delayed_until, expires, properties::text, data::text"
    shaped.execute("savepoint before")
    expected = rows(shaped, f"select {columns}, headers::text from mbus.{whole}")
    shaped.execute("rollback to before")
    assert rows(shaped, f"select {columns}, {WHOLE} from mbus.{quick}") == expected
    assert len(expected) >= 3
    assert all('"enqueue_time"' in row[-1] for row in expected)


def test_headers_are_left_out_only_where_there_are_no_others(bus: Connection) -> None:
    post(bus, 1)
    post(bus, 2, "colour=>red")
    bus.execute("select mbus.reject('q', 'default', %s, '0')", (post(bus, 3),))
    assert rows(
        bus,
        "select data->'n', headers->'colour', headers->'attempts', headers is null"
        " from mbus.batch_q_by_default(9)",
    ) == [("1", None, None, True), ("2", "red", None, False), ("3", None, "1", False)]


def test_a_message_of_a_batch_can_be_given_back(shaped: Connection) -> None:
    post_many(shaped, 3)
    taken = column(shaped, "select iid from mbus.batch_q_by_default(9)")
    shaped.execute("savepoint taken")
    answer = one(
        shaped,
        "select mbus.give_back('default', row(null, now(), %s, null, null, null, null, null,"
        " 'n=>1')::mbus.qt_model, '0', 'failed')",
        taken[-1],
    )
    assert answer == "ready"
    assert taken[-1] in column(shaped, "select iid from mbus.batch_q_by_default(9)")


def test_a_paused_consumer_gets_no_batch(shaped: Connection) -> None:
    post_many(shaped, 3)
    shaped.execute("select mbus.pause('q', 'default', 'repair')")
    assert column(shaped, "select iid from mbus.batch_q_by_default(9)") == []
    assert column(shaped, "select iid from mbus.leasen_q_by_default(9, '1 minute')") == []
