"""Posting: what comes out is what went in, under the iid that was given or returned."""

from __future__ import annotations

import re
import time

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, one, post, post_many, refused, rows, take

PAYLOADS = {
    "hstore": ("'a=>1, b=>NULL'::hstore", '"a"=>"1", "b"=>NULL'),
    "jsonb": ("'{\"a\": [1, null]}'::jsonb", '{"a": [1, null]}'),
    "text": ("'ничего {queue} $function$'::text", "ничего {queue} $function$"),
    "bytea": ("'\\x00ff'::bytea", "\\x00ff"),
}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_each_payload_type_comes_back_unchanged(connection: Connection, payload: str) -> None:
    written, read = PAYLOADS[payload]
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    connection.execute(f"select mbus.post_q({written})".encode())
    connection.execute(f"select mbus.post('q', {written})".encode())
    connection.execute(f"select mbus.postn_q(array[{written}])".encode())
    got = column(connection, "select data::text from mbus.consumen_q_by_default(10)")
    assert got == [read] * 3


@pytest.mark.parametrize("kind", ["text", "varchar", "unknown"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_text_is_read_as_the_payload_of_the_queue(
    connection: Connection, payload: str, kind: str
) -> None:
    _, read = PAYLOADS[payload]
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    connection.execute(f"select mbus.post('q', %s::{kind})".encode(), (read,))
    assert one(connection, "select data::text from mbus.consume_q_by_default()") == read


@pytest.mark.parametrize("kind", ["text", "varchar", "unknown"])
def test_a_text_of_any_type_is_posted_to_a_temporary_queue(
    connection: Connection, kind: str
) -> None:
    name = one(connection, "select mbus.create_temporary_queue()")
    connection.execute(f"select mbus.post(%s, 'a=>1'::{kind})".encode(), (name,))
    assert one(connection, "select data -> 'a' from mbus.consume_temporary(%s)", name) == "1"


@pytest.mark.parametrize("queue", ["hstore", "jsonb", "bytea"])
def test_a_text_that_cannot_be_read_is_refused(connection: Connection, queue: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (queue,))
    with refused(connection, "MB011"):
        connection.execute("select mbus.post('q', %s::text)", ("\\x{{",))


@pytest.mark.parametrize(
    ("queue", "given"),
    [("hstore", "'{}'::jsonb"), ("jsonb", "'a=>1'::hstore"), ("text", "'\\x00'::bytea")],
)
def test_another_payload_type_is_refused(connection: Connection, queue: str, given: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (queue,))
    with refused(connection, "MB011"):
        connection.execute(f"select mbus.post('q', {given})".encode())


def test_an_iid_names_queue_number_and_node(bus: Connection) -> None:
    iid = post(bus, 1)
    node = one(bus, "select name from mbus.node")
    assert re.fullmatch(rf"q\.\d+@{node}", iid)
    assert one(bus, "select iid from mbus.consume('q')") == iid


def test_a_message_carries_all_it_was_given(bus: Connection) -> None:
    bus.execute("select mbus.post_q('n=>1', 'trace=>x', 'STATE=>DONE', '2020-01-01', '2100-01-01')")
    assert rows(
        bus,
        "select headers->'trace', properties->'STATE', delayed_until, expires, added <= mbus.now(),"
        " received from mbus.consume('q')",
    ) == rows(
        bus,
        "select 'x', 'DONE', '2020-01-01'::timestamptz, '2100-01-01'::timestamptz, true,"
        " null::integer[]",
    )


@pytest.mark.parametrize(
    "call", ["post_q('n=>1', ", "post('q', 'n=>1', ", "post('q', 'n=>1'::hstore, "]
)
def test_a_reserved_iid_is_honoured(bus: Connection, call: str) -> None:
    iid = one(bus, "select mbus.get_iid('q')")
    post(bus, 2)
    assert one(bus, f"select mbus.{call} iid => %s)", iid) == iid
    assert one(bus, "select mbus.peek_q(%s)", iid)
    assert iid in column(bus, "select iid from mbus.consumen_q_by_default(2)")


def test_a_message_posted_under_its_reserved_iid_can_be_taken(bus: Connection) -> None:
    iid = one(bus, "select mbus.get_iid('q')")
    post(bus, 1, iid=iid)
    assert rows(bus, "select iid, data->'n' from mbus.take(%s)", iid) == [(iid, "1")]


def test_a_reserved_iid_is_honoured_with_a_delay(bus: Connection) -> None:
    iid = one(bus, "select mbus.get_iid('q')")
    assert post(bus, 1, iid=iid, delayed_until="2100-01-01") == iid
    with refused(bus, "MB010"):
        post(bus, 2, iid=iid)


def test_an_iid_in_use_is_refused(bus: Connection) -> None:
    iid = post(bus, 1)
    with refused(bus, "MB010"):
        post(bus, 2, iid=iid)
    assert take(bus) == ["1"]


def test_a_message_may_be_posted_again_under_its_iid_by_the_transaction_that_took_it(
    bus: Connection,
) -> None:
    iid = post(bus, 1)
    take(bus)
    assert post(bus, 2, iid=iid) == iid
    assert rows(bus, "select iid, data->'n' from mbus.consume('q')") == [(iid, "2")]


@pytest.mark.parametrize(
    "iid", ["other.1@{node}", "q.1@nowhere", "q.999@{node}", "q.x@{node}", "q.1", "", "'; drop"]
)
def test_an_iid_that_was_never_issued_here_is_refused(bus: Connection, iid: str) -> None:
    bus.execute("select mbus.create_queue('other')")
    bus.execute("select mbus.get_iid('q')")
    with refused(bus, "MB009"):
        post(bus, 1, iid=iid.format(node=one(bus, "select name from mbus.node")))


def test_two_sessions_cannot_both_post_under_one_iid(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(live), connect(live), connect(live)
    iid = one(first, "select mbus.get_iid('q')")
    post(first, 1, iid=iid)

    def post_again() -> None:
        with refused(second, "MB010"):
            post(second, 2, iid=iid)

    posting = in_thread(post_again)
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit()
    posting.result()


def test_many_messages_are_posted_in_order_with_their_iids(bus: Connection) -> None:
    iids = post_many(bus, 1000)
    assert len(set(iids)) == 1000
    got = rows(bus, "select iid, data->'n' from mbus.consumen_q_by_default(1000)")
    assert got == [(iid, str(n)) for n, iid in enumerate(iids, 1)]


def test_many_messages_share_or_have_their_own_headers(bus: Connection) -> None:
    bus.execute(
        "select mbus.postn_q(array['n=>1', 'n=>2']::hstore[], array['a=>1']::hstore[],"
        " array['p=>1', 'p=>2']::hstore[], expires => '2100-01-01')"
    )
    assert rows(
        bus,
        "select headers->'a', properties->'p', expires is null from mbus.consumen_q_by_default(9)",
    ) == [("1", "1", False), ("1", "2", False)]


def test_many_messages_with_priorities_keys_and_delay(bus: Connection) -> None:
    iids = one(
        bus,
        "select mbus.postn_q(array['n=>1', 'n=>2', 'n=>3', 'n=>3']::hstore[],"
        " array['', 'priority=>high', 'dedup_key=>x', 'dedup_key=>x']::hstore[])",
    )
    assert iids[2] == iids[3]
    assert take(bus) == ["2", "1", "3"]
    bus.execute(
        "select mbus.postn_q(array['n=>1']::hstore[], delayed_until => mbus.now() + interval '1 h')"
    )
    assert take(bus) == []


@pytest.mark.parametrize("selector", [None, "t.properties is null"])
def test_many_messages_take_no_longer_when_the_plan_contains_them(
    bus: Connection, selector: str | None
) -> None:
    """The first plans of a session contain the arrays as constants."""
    if selector:
        bus.execute("select mbus.create_consumer('q', 'other', %s)", (selector,))
    array = f"array_fill('a=>{'x' * 200}'::hstore, array[40000])"
    seconds = dict.fromkeys(("generic", "custom"), 1000.0)
    for kind in (*seconds, *seconds):
        bus.execute(f"set local plan_cache_mode = force_{kind}_plan".encode())
        began = time.perf_counter()
        bus.execute(f"select mbus.postn_q({array}, {array})".encode())
        seconds[kind] = min(seconds[kind], time.perf_counter() - began)
    assert seconds["custom"] < 5 * seconds["generic"]


@pytest.mark.parametrize("dimensions", ["array[3]", "array[3], array[5]", "array[1, 3]"])
def test_arrays_may_begin_anywhere_and_have_more_dimensions(
    bus: Connection, dimensions: str
) -> None:
    filled = [f"array_fill('{each}=>1'::hstore, {dimensions})" for each in "npq"]
    bus.execute(f"select mbus.postn_q({', '.join(filled)})".encode())
    assert rows(
        bus, "select data->'n', headers->'p', properties->'q' from mbus.consumen_q_by_default(9)"
    ) == 3 * [("1", "1", "1")]


@pytest.mark.parametrize("data", ["null::hstore[]", "'{}'::hstore[]"])
def test_posting_no_message_at_all_returns_no_iid(bus: Connection, data: str) -> None:
    assert one(bus, f"select mbus.postn_q({data})") == []


def test_a_rolled_back_post_is_never_delivered(live: str, connect: Connect) -> None:
    poster, consumer = connect(live), connect(live)
    post(poster, 1)
    poster.rollback()
    post(poster, 2)
    poster.commit()
    assert take(consumer) == ["2"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("payload", ["bytea", "text"])
def test_a_payload_of_100_megabytes_passes(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    size = 100 * 1024 * 1024
    connection.execute(
        f"select mbus.post_q(repeat('x', {size})::{payload})".encode(), prepare=False
    )
    assert one(connection, "select octet_length(data) from mbus.consume_q_by_default()") == size


def test_many_forwarded_messages_are_posted_at_once_with_their_journey(
    connection: Connection,
) -> None:
    connection.execute("select mbus.create_queue('forwarded', payload => 'text')")
    here = connection.info.dbname
    connection.execute(
        "select mbus.postn_forwarded(array['a', 'b', 'c', 'd'], array["
        "'seenby=>{x}, source_db=>x', hstore('seenby', %s), null, 'group=>g, seenby=>{x}'])",
        (f"{{x,{here}}}",),
    )
    found = connection.execute(
        "select data, headers -> 'seenby', headers -> 'source_db'"
        " from mbus.consumen_forwarded_by_default(10)"
    ).fetchall()
    assert sorted(found) == [
        ("a", f"{{x,{here}}}", "x"),
        ("b", f"{{x,{here},{here}}}", here),
        ("c", f"{{{here}}}", here),
        ("d", f"{{x,{here}}}", here),
    ]
