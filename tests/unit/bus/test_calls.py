from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroad.bus import (
    ForeignIid,
    InvalidArgument,
    Lease,
    NameTooLong,
    WrongPayload,
    calls,
    queue_calls,
)
from postroad.bus.parameters import function, queue_of
from postroad.bus.payload import array, parameter


def test_functions_of_a_queue_are_named_and_quoted() -> None:
    assert function("consumen", "orders", "by", "billing") == 'mbus."consumen_orders_by_billing"'
    assert function("post", 'a"; drop table x') == 'mbus."post_a""; drop table x"'
    with pytest.raises(NameTooLong):
        function("post", "q" * 60)


def test_an_iid_names_its_queue() -> None:
    assert queue_of("orders.4711@k3f9q2") == "orders"
    for wrong in ("orders", ".4711@x", ""):
        with pytest.raises(ForeignIid):
            queue_of(wrong)


def test_a_post_sends_text_and_lets_the_server_decide() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    call = calls.post("orders", {"ж": 1}, {"a": "b"}, delayed_until=moment).build("jsonb")
    assert call.text.startswith('select mbus."post_orders"(data => %s')
    assert call.parameters == ('{"ж":1}', '"a"=>"b"', None, moment, None, None)
    assert call.read([("orders.1@x",)]) == "orders.1@x"
    assert call.queue == "orders"


def test_many_posts_are_cut_into_calls_in_order() -> None:
    data = [str(number) for number in range(2_001)]
    many = calls.post_many("orders", data, None, [{"n": n} for n in data]).build("text").parts
    assert len(many) == 3
    assert many[2].parameters[0] == ["2000"]
    assert many[2].parameters[2] == r'{"\"n\"=>\"2000\""}'
    assert many[0].read([(["a", "b"],)]) == ["a", "b"]


def test_a_consumer_is_read_by_column_names() -> None:
    call = calls.consume("orders", "default", 5).build("text")
    assert call.text.startswith("select id, added, iid,")
    assert call.parameters == (5,)
    now = datetime.now(UTC)
    row = (
        1,
        now,
        "orders.1@x",
        None,
        None,
        None,
        '"a"=>"1", "enqueue_time"=>"x"',
        None,
        "text, no => hstore",
    )
    [message] = call.read([row])
    assert message.headers == {"a": "1", "enqueue_time": "x"}
    assert message.properties == {}
    assert message.received == ()
    assert message.data == "text, no => hstore"


def test_leases_are_answered_together() -> None:
    call = calls.ack_many([Lease("a.1@x", 7), Lease("a.2@x", 8)])
    assert call.parameters == ('{"a.1@x","a.2@x"}', '{"7","8"}')
    assert call.read([(None,)]) == []
    call = calls.ack_many([Lease("a.1@x", 7), Lease("a.2@x", 8)], "default")
    assert call.text.startswith('select mbus."ackn_a_by_default"(')
    assert call.read([([8],)]) == ["a.2@x"]
    assert calls.extend_lease(Lease("a.1@x", 7), timedelta(seconds=1)).parameters[2] == timedelta(
        seconds=1
    )


def test_only_hstore_queues_leave_the_type_to_the_default() -> None:
    assert "regtype" not in queue_calls.create_queue("orders", 8, False, "hstore").text
    assert "regtype" in queue_calls.create_queue("orders", 8, False, "bytea").text
    with pytest.raises(InvalidArgument, match="xml"):
        queue_calls.create_queue("orders", 8, False, "xml")  # type: ignore[arg-type]


def test_payloads_are_adapted_or_refused() -> None:
    assert parameter("bytea", memoryview(b"ab")) == b"ab"
    assert array("bytea", [b"\x00\xff"]) == r'{"\\x00ff"}'
    assert array("jsonb", [None, "a"]) == r'{"null","\"a\""}'
    for payload, value in (("hstore", "x"), ("jsonb", {1, 2}), ("text", 1), ("bytea", "x")):
        with pytest.raises(WrongPayload):
            parameter(payload, value)  # type: ignore[arg-type]
