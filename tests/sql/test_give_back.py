"""A transaction that took a message and failed gives it back."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, maintain, one, post, post_many, refused, rows, take

WAYS = {
    "consume": "mbus.consume('q')",
    "consume_q": "mbus.consume_q_by_default()",
    "consumen_q": "mbus.consumen_q_by_default(10)",
    "take": "mbus.take('{iid}')",
    "take_from_q": "mbus.take_from_q_by_default('{iid}')",
    "dyn_consume": "mbus.dyn_consume('q')",
}
BACK = (
    "select mbus.give_back('default', m, delay => '0', error => 'no paper')"
    " from mbus.consume('q') m"
)


@pytest.fixture(params=["direct", "fanout", "grouped", "waited"])
def shaped(request: pytest.FixtureRequest, bus: Connection) -> Connection:
    """Give an empty queue `q` in each shape of its functions."""
    if request.param == "fanout":
        bus.execute("select mbus.create_consumer('q', 'second')")
    if request.param == "grouped":
        post(bus, 0, "group=>a")
    if request.param == "waited":
        bus.execute("select mbus.create_queue('after')")
        post(bus, 0, f"consume_after=>{post(bus, 0)}", queue="after")
    take(bus)
    return bus


@pytest.mark.parametrize("way", WAYS)
def test_reject_refuses_a_message_that_its_own_transaction_took(
    shaped: Connection, way: str
) -> None:
    iid = post(shaped, 1)
    assert rows(shaped, f"select * from {WAYS[way].format(iid=iid)}")
    with refused(shaped, "MB025"):
        shaped.execute("select mbus.reject('q', 'default', %s)", (iid,))


def test_after_a_rollback_to_a_savepoint_reject_counts(bus: Connection) -> None:
    iid = post(bus, 1)
    with bus.transaction(force_rollback=True):
        assert take(bus) == ["1"]
    assert one(bus, "select mbus.reject('q', 'default', %s, '0')", iid) == "ready"


def test_reject_of_a_message_that_another_transaction_consumed_answers_absent(
    live: str, connect: Connect
) -> None:
    connection = connect(live, autocommit=True)
    iid, _ = post_many(connection, 2)
    assert take(connection, 1) == ["1"]
    with connection.transaction():
        assert take(connection, 1) == ["2"]
        assert one(connection, "select mbus.reject('q', 'default', %s)", iid) == "absent"


@pytest.mark.parametrize("way", WAYS)
def test_a_message_is_given_back_in_the_transaction_that_took_it(
    shaped: Connection, way: str
) -> None:
    iid = post(shaped, 1, properties="colour=>red")
    answer = one(
        shaped,
        "select mbus.give_back('default', m, delay => '0', error => 'no paper')"
        f" from {WAYS[way].format(iid=iid)} m",
    )
    assert answer == "ready"
    assert rows(
        shaped,
        "select iid, headers->'attempts', properties->'colour', data->'n'"
        " from mbus.consume_q_by_default()",
    ) == [(iid, "1", "red", "1")]


def test_attempts_and_history_go_on_until_the_message_is_dead(shaped: Connection) -> None:
    shaped.execute("select mbus.alter_consumer('q', 'default', max_attempts => 3)")
    post(shaped, 1)
    assert [one(shaped, BACK) for _ in range(3)] == ["ready", "ready", "dmq"]
    attempts, errors = rows(
        shaped,
        "select attempts, array(select jsonb_array_elements(history)->>'attempt') from mbus.dead",
    )[0]
    assert (attempts, errors) == (3, ["1", "2", "3"])


def test_attempts_of_a_message_under_a_reserved_iid_are_counted(shaped: Connection) -> None:
    iid = one(shaped, "select mbus.get_iid('q')")
    shaped.execute("select mbus.post('q', 'n=>1', iid => %s)", (iid,))
    for _ in range(2):
        assert one(shaped, BACK) == "ready"
    assert rows(shaped, "select iid, headers->'attempts' from mbus.consume('q')") == [(iid, "2")]


def test_a_message_is_dead_lettered_or_delayed_in_the_transaction_that_took_it(
    bus: Connection,
) -> None:
    post_many(bus, 2)
    query = "select mbus.give_back('default', m, {}) from mbus.consume('q') m"
    assert one(bus, query.format("park => true, error => 'torn'")) == "dmq"
    assert one(bus, query.format("delay => '1 minute'")) == "delayed"
    assert rows(bus, "select ready, delayed, dmq from mbus.status") == [(0, 1, 1)]
    assert column(bus, "select error from mbus.dead") == ["torn"]


@pytest.mark.parametrize("payload", ["hstore", "jsonb", "text", "bytea"])
def test_every_payload_comes_back_unchanged(bus: Connection, payload: str) -> None:
    bus.execute(f"select mbus.create_queue('p', payload => '{payload}')".encode())
    data = {"hstore": r'"a\"b"=>NULL', "jsonb": '{"a": 1.50}', "text": "", "bytea": r"\x00ff"}
    bus.execute("select mbus.post('p', %s::text)", (data[payload],))
    bus.execute(
        "select mbus.give_back('default', m, delay => '0') from mbus.consume_p_by_default() m"
    )
    expected = one(bus, f"select %s::{payload}::text", data[payload])
    assert column(bus, "select data::text from mbus.consume_p_by_default()") == [expected]


def test_only_the_consumer_that_took_it_gets_it_again(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post(bus, 1)
    assert take(bus, whose="q_by_second") == ["1"]
    assert one(bus, BACK) == "ready"
    assert take(bus, whose="q_by_second") == []
    assert take(bus) == ["1"]


def test_messages_that_wait_for_it_go_on_waiting(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('after')")
    before = post(bus, 1)
    post(bus, 2, f"consume_after=>{before}", queue="after")
    assert one(bus, BACK) == "ready"
    assert take(bus, whose="after_by_default") == []
    assert take(bus) == ["1"]
    assert take(bus, whose="after_by_default") == ["2"]


def test_what_this_transaction_did_not_take_is_not_given_back(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    post_many(connection, 2)
    back = "select mbus.give_back('default', %s::mbus.qt_model)"
    message = one(connection, "select m::text from mbus.consume('q') m")
    with refused(connection, "MB026"):
        connection.execute(back, (message,))
    with connection.transaction():
        message = one(connection, "select m::text from mbus.consume('q') m")
        assert one(connection, back, message) == "delayed"
        with refused(connection, "MB026"):
            connection.execute(back, (message,))


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("null::mbus.qt_model", "MB012"),
        ("1", "MB011"),
        ("row(null,null,null,null,null,null,null,null,null)::mbus.qt_model", "MB009"),
        ("row(1,null,'none.1@x',null,null,null,null,null,null)::mbus.qt_model", "MB001"),
        ("row(1,null,'q.1@x',null,null,null,null,null,null)::mbus.qt_model_jsonb", "MB011"),
    ],
)
def test_give_back_refuses_what_is_no_message(bus: Connection, argument: str, code: str) -> None:
    post(bus, 1)
    take(bus)
    with refused(bus, code):
        bus.execute(f"select mbus.give_back('default', {argument})".encode())


# The seed's way: post the message again under its old iid, with a count in its properties.

AGAIN = (
    "select mbus.post('{queue}', 'n=>again'::hstore, (m).headers, 'tries=>1', iid => (m).iid,"
    " delayed_until => mbus.now() + %s::interval) from mbus.consume('{source}') m"
)


@pytest.mark.parametrize("delay", [None, "1 minute"])
def test_a_post_under_the_old_iid_is_for_the_consumer_that_took_it(
    live: str, connect: Connect, delay: str | None
) -> None:
    connection = connect(live, autocommit=True)
    connection.execute("select mbus.create_queue('copies')")
    connection.execute("select mbus.create_trigger('q', 'copies')")
    for name in ("second", "third"):
        connection.execute("select mbus.create_consumer('q', %s)", (name,))
    iid = post(connection, 1, "dedup_key=>once")
    assert take(connection, whose="copies_by_default") == ["1"]
    assert take(connection, whose="q_by_third") == ["1"]
    assert one(connection, AGAIN.format(queue="q", source="q"), delay) == iid
    if delay:
        assert take(connection) == []
        connection.execute("update mbus.delayed set due_at = mbus.now()")
        maintain(connection)
    assert rows(
        connection,
        "select iid, data->'n', properties->'tries',"
        " headers->'seenby' = array[current_database()]::text from mbus.consume('q')",
    ) == [(iid, "again", "1", True)]
    assert take(connection, whose="q_by_second") == ["1"]
    assert take(connection, whose="q_by_third") == []
    assert take(connection, whose="copies_by_default") == []


def test_an_iid_that_was_consumed_cannot_be_posted_again(live: str, connect: Connect) -> None:
    connection = connect(live, autocommit=True)
    iid, other = post_many(connection, 2)
    assert take(connection, 1) == ["1"]
    with refused(connection, "MB010"):
        post(connection, 3, iid=iid)
    with connection.transaction():
        assert take(connection, 1) == ["2"]
        with refused(connection, "MB010"):
            post(connection, 3, iid=iid)
        assert post(connection, 4, iid=other) == other
    with refused(connection, "MB010"):
        post(connection, 5, iid=other)


@pytest.fixture
def with_dmq(live: str, connect: Connect) -> Connection:
    """Give a queue `q` with two consumers, `dead_q` as its dmq, and `after`."""
    connection = connect(live, autocommit=True)
    connection.execute("select mbus.create_queue('dead_q'), mbus.create_queue('after')")
    connection.execute("select mbus.create_consumer('q', 'second')")
    return connection


def test_a_failed_message_goes_to_an_own_dmq_and_back_under_its_old_iid(
    with_dmq: Connection,
) -> None:
    iid = post(with_dmq, 1)
    parked = one(with_dmq, AGAIN.format(queue="dead_q", source="q"), None)
    assert rows(with_dmq, "select iid, headers->'moved_from' from mbus.browse('dead_q')") == [
        (parked, iid)
    ]
    with refused(with_dmq, "MB010"):
        post(with_dmq, 2, iid=iid)
    with with_dmq.transaction():
        ((data, old),) = rows(
            with_dmq, "select data, headers->'moved_from' from mbus.consume('dead_q')"
        )
        assert one(with_dmq, "select mbus.post('q', %s, iid => %s)", data, old) == iid
    assert rows(with_dmq, "select iid, data->'n' from mbus.consume('q')") == [(iid, "again")]
    assert take(with_dmq, whose="q_by_second") == ["1"]
    assert take(with_dmq, whose="q_by_second") == []


def test_messages_wait_while_their_predecessor_is_in_an_own_dmq(with_dmq: Connection) -> None:
    iid = post(with_dmq, 1)
    post(with_dmq, 2, f"consume_after=>{iid}", queue="after")
    assert take(with_dmq, whose="q_by_second") == ["1"]
    one(with_dmq, AGAIN.format(queue="dead_q", source="q"), None)
    maintain(with_dmq, None)
    assert take(with_dmq, whose="after_by_default") == []
    one(
        with_dmq,
        "select mbus.post('q', m.data, iid => m.headers->'moved_from')"
        " from mbus.consume('dead_q') m",
    )
    maintain(with_dmq, None)
    assert take(with_dmq, whose="after_by_default") == []
    one(with_dmq, AGAIN.format(queue="dead_q", source="q"), None)
    assert take(with_dmq, whose="dead_q_by_default") == ["again"]
    maintain(with_dmq, None)
    assert take(with_dmq, whose="after_by_default") == ["2"]


def test_the_iid_of_another_queue_is_refused_unless_this_transaction_took_it(
    with_dmq: Connection,
) -> None:
    iid = post(with_dmq, 1)
    with refused(with_dmq, "MB009"):
        post(with_dmq, 2, queue="dead_q", iid=iid)
    take(with_dmq)
    with refused(with_dmq, "MB009"):
        post(with_dmq, 2, queue="dead_q", iid=iid)
