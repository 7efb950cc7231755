"""create_view: a queue as a view that ordinary users can be granted."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.sql.calls import column, lease, maintain, one, post, post_many, refused, rows, take


def shown(connection: Connection, view: str = "public.q_q") -> list[str]:
    return column(connection, f"select data->'n' from {view} order by iid")


def test_the_default_name_is_the_queue_with_q_in_public(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    assert one(bus, "select to_regclass('public.q_q') is not null")


def test_name_schema_and_consumer_can_be_chosen(bus: Connection) -> None:
    owner = one(bus, "select nspowner::regrole::text from pg_namespace where nspname = 'mbus'")
    bus.execute(f"create schema shop; grant usage, create on schema shop to {owner}".encode())
    bus.execute("select mbus.create_consumer('q', 'second')")
    bus.execute("select mbus.create_view('q', 'second', 'shop', 'Orders in')")
    post(bus, 1)
    take(bus)
    assert shown(bus, 'shop."Orders in"') == ["1"]


def test_inserting_posts(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    bus.execute(
        "insert into public.q_q (data, headers, properties, expires)"
        " values ('n=>1', 'priority=>high', 'p=>1', '2100-01-01')"
    )
    bus.execute("insert into public.q_q (data, delayed_until) values ('n=>2', '2100-01-01')")
    assert rows(
        bus,
        "select data->'n', headers->'priority', properties->'p', expires is null"
        " from mbus.consume('q')",
    ) == [("1", "high", "1", False)]
    assert one(bus, "select count(*) from mbus.delayed") == 1


def test_inserting_returns_the_iid(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    iid = one(bus, "insert into public.q_q (data) values ('n=>1') returning iid")
    assert one(bus, "select iid from mbus.consume('q')") == iid


def test_selecting_shows_what_is_ready_and_takes_nothing(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    iids = post_many(bus, 3)
    assert sorted(column(bus, "select iid from public.q_q")) == sorted(iids)
    lease(bus)
    assert len(shown(bus)) == 2
    assert take(bus) == ["2", "3"]
    assert shown(bus) == []


def test_an_expired_message_is_not_shown(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    post(bus, 1, expires="2020-01-01")
    assert shown(bus) == []


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_other_payloads_have_views_too(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    connection.execute("select mbus.create_view('q')")
    connection.execute("insert into public.q_q (data) values ('12')")
    assert one(connection, "select data::text from public.q_q") == (
        "\\x3132" if payload == "bytea" else "12"
    )


def test_a_user_needs_rights_on_the_view_alone(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    bus.execute(f"create role clerk_{bus.info.dbname}".encode())
    bus.execute(f"grant select, insert on public.q_q to clerk_{bus.info.dbname}".encode())
    bus.execute(f"set local role clerk_{bus.info.dbname}".encode())
    bus.execute("insert into public.q_q (data) values ('n=>1')")
    assert shown(bus) == ["1"]
    with refused(bus, "42501"):
        bus.execute("select mbus.consume('q')")
    bus.execute("reset role")


def test_a_view_follows_the_queue_when_it_changes_its_shape(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    post(bus, 1)
    bus.execute("select mbus.create_consumer('q', 'second')")
    post(bus, 2, "priority=>high")
    assert shown(bus) == ["1", "2"]
    assert take(bus) == ["2", "1"]
    assert shown(bus) == []
    bus.execute("select mbus.drop_consumer('q', 'second')")
    post(bus, 3)
    assert shown(bus) == ["3"]


def test_a_view_may_be_made_again(bus: Connection) -> None:
    bus.execute("select mbus.create_view('q')")
    bus.execute("select mbus.create_view('q')")
    post(bus, 1)
    maintain(bus)
    assert shown(bus) == ["1"]


def test_a_dropped_consumer_takes_its_view_along(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    bus.execute("select mbus.create_view('q', 'second', viewname => 'gone')")
    bus.execute("select mbus.drop_consumer('q', 'second')")
    assert one(bus, "select to_regclass('public.gone') is null")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("'none'", "MB001"), ("'q', 'none'", "MB002"), ("'q', 'default', 'none'", "MB012")],
)
def test_a_view_of_nothing_is_refused(bus: Connection, arguments: str, code: str) -> None:
    with refused(bus, code):
        bus.execute(f"select mbus.create_view({arguments})".encode())
