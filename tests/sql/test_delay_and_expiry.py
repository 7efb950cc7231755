"""Messages come after their delay and never after their end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    column,
    lease,
    maintain,
    nobody_maintains,
    one,
    post,
    post_many,
    refused,
    rows,
    shift_clock,
    take,
)

pytestmark = pytest.mark.both_versions

HOUR = timedelta(hours=1)


def later(connection: Connection, hours: float = 1) -> object:
    return one(connection, "select mbus.now() + %s * interval '1 hour'", hours)


def test_a_delayed_message_comes_after_its_time_and_not_before(bus: Connection) -> None:
    nobody_maintains(bus)
    post(bus, 1, delayed_until=later(bus))
    assert take(bus) == []
    shift_clock(bus, HOUR + timedelta(seconds=1))
    assert rows(bus, "select data->'n', delayed_until > added from mbus.consume('q')") == [
        ("1", True)
    ]
    assert take(bus) == []


def test_a_delay_that_is_over_delays_nothing(bus: Connection) -> None:
    post(bus, 1, delayed_until="2020-01-01")
    assert take(bus) == ["1"]


@pytest.mark.parametrize("amount", [1, 100])
def test_due_messages_come_without_any_maintenance(bus: Connection, amount: int) -> None:
    for number in range(5):
        post(bus, number, delayed_until=later(bus))
    shift_clock(bus, 2 * HOUR)
    got: list[str] = []
    while found := take(bus, amount):
        got += found
    assert got == ["0", "1", "2", "3", "4"]


def test_messages_come_in_order_of_their_delays(bus: Connection) -> None:
    numbers = [7, 3, 9, 1, 8, 2]
    for number in numbers:
        post(bus, number, delayed_until=later(bus, number))
    bus.execute(
        "select mbus.postn_q(array(select hstore('n', n::text) from generate_series(100, 130) n),"
        " delayed_until => %s)",
        (later(bus, 10),),
    )
    shift_clock(bus, 20 * HOUR)
    maintain(bus)
    expected = [*sorted(numbers), *range(100, 131)]
    assert take(bus) == [str(n) for n in expected]


def test_a_delayed_message_keeps_its_iid_and_headers(bus: Connection) -> None:
    iid = post(bus, 1, "trace=>x", delayed_until=later(bus))
    shift_clock(bus, 2 * HOUR)
    assert rows(
        bus, "select iid, headers->'trace', headers ? 'attempts' from mbus.consume('q')"
    ) == [(iid, "x", False)]


def test_an_expired_message_is_never_delivered(bus: Connection) -> None:
    post(bus, "brief", expires=later(bus))
    bus.execute("select mbus.postn_q(array['n=>brief']::hstore[], expires => %s)", (later(bus),))
    post(bus, "brief", "priority=>high", expires=later(bus))
    post(bus, "brief", "group=>a", expires=later(bus))
    iid = post(bus, "brief", delayed_until=later(bus, 0.5), expires=later(bus))
    post(bus, "long", expires=later(bus, 9))
    post(bus, "always")
    shift_clock(bus, 2 * HOUR)
    assert not one(bus, "select mbus.peek_q(%s)", iid)
    assert rows(bus, "select * from mbus.take(%s)", iid) == []
    assert take(bus) == ["long", "always"]


@pytest.mark.parametrize("has_second", [False, True])
def test_expired_messages_do_not_stand_before_the_others(bus: Connection, has_second: bool) -> None:
    if has_second:
        bus.execute("select mbus.create_consumer('q', 'second')")
    nobody_maintains(bus)
    post(bus, "brief", expires=later(bus))
    for number in range(3):
        post(bus, f"brief {number}", delayed_until=later(bus), expires=later(bus, 2))
    post(bus, "good", delayed_until=later(bus))
    shift_clock(bus, 3 * HOUR)
    assert take(bus, 1) == ["good"]


@pytest.mark.parametrize("has_second", [False, True])
def test_maintenance_removes_expired_messages_unasked(bus: Connection, has_second: bool) -> None:
    if has_second:
        bus.execute("select mbus.create_consumer('q', 'second')")
    post(bus, "brief", expires=later(bus))
    post(bus, "brief", delayed_until=later(bus, 0.5), expires=later(bus))
    post(bus, "long", expires=later(bus, 9))
    assert maintain(bus).get("q", {}).get("expired", 0) == 0
    shift_clock(bus, 2 * HOUR)
    assert maintain(bus)["q"]["expired"] == (3 if has_second else 2)
    assert rows(
        bus, "select depth, ready, delayed from mbus.status where consumer = 'default'"
    ) == [(1, 1, 0)]


def test_clear_queue_deletes_the_expired_and_nothing_else(bus: Connection) -> None:
    post_many(bus, 3)
    post(bus, "brief", expires=later(bus))
    post(bus, "later", delayed_until=later(bus, 9))
    post(bus, "long", expires=later(bus, 9))
    assert one(bus, "select mbus.clear_queue_q()") == 0
    shift_clock(bus, 2 * HOUR)
    assert one(bus, "select mbus.clear_queue_q()") == 1
    assert one(bus, "select mbus.clear_queue_q()") == 0
    assert take(bus) == ["1", "2", "3", "long"]


def test_clear_queue_spares_what_one_of_two_consumers_has_not_read(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 3)
    take(bus)
    bus.execute("select mbus.clear_queue_q()")
    assert take(bus, whose="q_by_second") == ["1", "2", "3"]


def test_an_expired_message_is_not_given_back_by_an_ended_lease(bus: Connection) -> None:
    post(bus, "brief", expires=later(bus))
    post(bus, "long")
    lease(bus, 2)
    shift_clock(bus, 2 * HOUR)
    assert take(bus, 1) == ["long"]
    maintain(bus)
    assert rows(bus, "select depth, dmq from mbus.status") == [(0, 0)]


def test_sessions_see_the_same_due_message_once(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    first, second = connect(live), connect(live)
    post(first, 1, delayed_until=later(first))
    first.commit()
    clock.advance(2 * HOUR)
    assert take(first) == ["1"]
    assert take(second) == []
    first.commit()
    assert take(second) == []


def test_what_is_due_for_others_does_not_hide_what_is_due_for_one(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'picky', $$(t.properties->'P')='yes'$$)")
    due = one(bus, "select mbus.now() + interval '1 second'")
    for number in range(20):
        post(bus, number, delayed_until=due)
    bus.execute(
        "select mbus.post_q('n=>last', properties => 'P=>yes', delayed_until => %s)", (due,)
    )
    shift_clock(bus, timedelta(seconds=2))
    assert column(bus, "select data->'n' from mbus.consume('q', 'picky')") == ["last"]


WAYS_IN = {
    "post_q": "select mbus.post_q('n=>1', {name} => '{time}')",
    "post": "select mbus.post('q', 'n=>1', {name} => '{time}')",
    "post jsonb": "select mbus.post('json', '1'::jsonb, {name} => '{time}')",
    "postn_q": "select mbus.postn_q(array['n=>1']::hstore[], {name} => '{time}')",
    "post with headers": "select mbus.post_q('n=>1', 'dedup_key=>a', {name} => '{time}')",
    "view": "insert into mbus.q_view (data, {name}) values ('n=>1', '{time}')",
    "temporary queue": (
        "select mbus.post(mbus.create_temporary_queue(), 'n=>1', {name} => '{time}')"
    ),
    "reply": (
        "select mbus.reply(hstore(array['reply_to', 'reply_by'], array['temp.1', '{time}']), 'a')"
    ),
    "saga": (
        'select mbus.create_saga(\'s\', \'[{{"name": "a", "do": "json"}}]\','
        " deadline => '{time}')"
    ),
}
OUT_OF_RANGE = [
    "infinity",
    "-infinity",
    "10000-01-01 00:00+00",
    "9999-12-31 23:59:59+00",
    "294276-12-31 00:00+00",
    "0001-01-01 00:00+00",
    "0002-01-01 00:00+00 BC",
]


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_time_that_clients_cannot_represent_is_refused(bus: Connection, way: str) -> None:
    bus.execute("select mbus.create_queue('json', payload => 'jsonb')")
    bus.execute("select mbus.create_view('q', sname => 'mbus', viewname => 'q_view')")
    for name in ("expires", "delayed_until"):
        for time in OUT_OF_RANGE:
            with refused(bus, "MB012"):
                bus.execute(WAYS_IN[way].format(name=name, time=time).encode())
    for table in ("delayed", "blocked", "saga"):
        assert one(bus, f"select count(*) from mbus.{table}") == 0


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_first_and_the_last_time_are_readable_in_every_zone(bus: Connection, zone: str) -> None:
    bus.execute(f"set local time zone '{zone}'".encode())
    post(bus, 1, expires="9999-12-30 00:00+00", delayed_until="0001-01-02 00:00+00")
    ((expires, _),) = rows(bus, "select expires, delayed_until from mbus.consume('q')")
    assert expires.year == 9999
