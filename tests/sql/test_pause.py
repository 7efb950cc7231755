"""Pause and resume: a paused consumer takes nothing, everything else goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection, sql

from tests.fixtures.postgres import Connect
from tests.sql.calls import (
    ack,
    column,
    lease,
    maintain,
    nack,
    one,
    post,
    post_many,
    refused,
    rows,
    shift_clock,
    take,
)

# Queues whose functions are generated in different ways.
SHAPES = {
    "direct": "select 1",
    "fanout": "select mbus.create_consumer('q', 'audit')",
    "groups": "select mbus.post_q('n=>0', 'group=>g'); select * from mbus.consume_q_by_default()",
    "lanes": "select mbus.post_q('n=>0', 'priority=>high');"
    " select * from mbus.consume_q_by_default()",
    "waiters": "select mbus.create_queue('other'); select mbus.post_other('n=>0',"
    " hstore('consume_after', array[mbus.post_q('n=>0')]::text));"
    " select * from mbus.consume_q_by_default()",
}


def pause(connection: Connection, consumer: str | None = None, queue: str = "q") -> bool:
    return one(
        connection, "select mbus.pause(%s, %s, reason => 'the ERP is down')", queue, consumer
    )


def resume(connection: Connection, consumer: str | None = None) -> bool:
    return one(connection, "select mbus.resume('q', %s)", consumer)


@pytest.mark.both_versions
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("consumer", [None, "default"])
def test_a_paused_consumer_takes_nothing_until_it_is_resumed(
    bus: Connection, shape: str, consumer: str | None
) -> None:
    bus.execute(SHAPES[shape].encode())
    bus.execute("select mbus.create_run_function('q')")
    assert pause(bus, consumer)
    iid = post(bus, 1)
    assert take(bus) == []
    assert lease(bus) == []
    assert rows(bus, "select * from mbus.consume('q')") == []
    assert rows(bus, "select * from mbus.take_from_q_by_default(%s)", iid) == []
    assert rows(bus, "select * from mbus.take(%s)", iid) == []
    assert rows(bus, "select * from mbus.dyn_consume('q')") == []
    assert one(bus, "select mbus.run_on_q('select 1')") == 0
    assert resume(bus, consumer)
    assert take(bus) == ["1"]


def test_other_consumers_go_on(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'audit')")
    pause(bus, "audit")
    iid = post(bus, 1)
    # The copy of the paused consumer must stay, so the message cannot be taken from all.
    assert rows(bus, "select * from mbus.take(%s)", iid) == []
    assert take(bus) == ["1"]
    assert take(bus, whose="q_by_audit") == []


def test_a_consumer_that_is_created_on_a_paused_queue_is_paused(bus: Connection) -> None:
    pause(bus)
    bus.execute("select mbus.create_consumer('q', 'late')")
    post(bus, 1)
    assert take(bus, whose="q_by_late") == []
    resume(bus)
    assert take(bus, whose="q_by_late") == ["1"]


def test_a_consumer_that_was_paused_itself_stays_paused_when_its_queue_is_resumed(
    bus: Connection,
) -> None:
    pause(bus, "default")
    pause(bus)
    post(bus, 1)
    resume(bus)
    assert take(bus) == []
    resume(bus, "default")
    assert take(bus) == ["1"]


def test_messages_that_are_held_can_be_answered(bus: Connection) -> None:
    post_many(bus, 3)
    (_, first, first_token, _), (_, second, second_token, _), (_, third, third_token, _) = lease(
        bus, 3
    )
    pause(bus)
    bus.execute("select mbus.extend(%s, %s)", (first, first_token))
    ack(bus, first, first_token)
    assert nack(bus, second, second_token, delay="0 s") == "ready"
    assert nack(bus, third, third_token, park=True) == "dmq"
    assert one(bus, "select mbus.reject('q', 'default', %s, delay => '0 s')", second) == "ready"


def test_leases_end_and_delayed_messages_come_due_while_paused(bus: Connection) -> None:
    post(bus, 1)
    lease(bus)
    bus.execute("select mbus.post_q('n=>2', delayed_until => mbus.now() + interval '10 s')")
    pause(bus)
    shift_clock(bus, timedelta(minutes=1))
    assert maintain(bus)["q"]["released"] == 1
    assert take(bus) == []
    resume(bus)
    shift_clock(bus, timedelta(minutes=2))
    assert sorted(take(bus)) == ["1", "2"]


def test_operators_can_purge_move_and_redrive_while_paused(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('other')")
    post_many(bus, 3)
    pause(bus)
    assert one(bus, "select mbus.move('q', 'other', amt => 1)") == 1
    assert one(bus, "select mbus.purge('q', amt => 1)") == 1
    (iid,) = column(bus, "select iid from mbus.browse('q')")
    bus.execute("select mbus.reject('q', 'default', %s, park => true)", (iid,))
    assert one(bus, "select mbus.redrive('q')") == 1
    resume(bus)
    assert len(take(bus)) == 1


def test_who_paused_when_and_why_is_listed(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'audit')")
    bus.execute("select mbus.pause('q', 'audit', 'the ERP is down', 'olga')")
    listed = "select paused_by, pause_reason, is_queue_paused from mbus.consumers"
    assert rows(bus, f"{listed} where consumer = 'audit'") == [("olga", "the ERP is down", False)]
    assert rows(bus, f"{listed} where consumer = 'default'") == [(None, None, False)]
    bus.execute("select mbus.pause('q', reason => '')")
    user = one(bus, "select session_user::text")
    assert rows(bus, f"{listed} where consumer = 'audit'") == [(user, None, True)]


def test_pausing_and_resuming_are_idempotent(bus: Connection) -> None:
    assert not resume(bus)
    assert pause(bus)
    bus.execute("select mbus.pause('q', reason => 'another', paused_by => 'olga')")
    assert one(bus, "select pause_reason from mbus.consumers") == "the ERP is down"
    assert resume(bus)
    assert not resume(bus)


def test_a_pause_needs_a_queue_and_a_consumer_that_exist(bus: Connection) -> None:
    with refused(bus, "MB001"):
        pause(bus, queue="nobody")
    with refused(bus, "MB002"):
        pause(bus, "nobody")
    with refused(bus, "MB002"):
        resume(bus, "nobody")


def test_the_queue_of_sagas_cannot_be_paused(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('sagas')")
    with refused(bus, "MB012"):
        pause(bus, queue="sagas")


def test_dropping_what_is_paused_ends_the_pause(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'audit')")
    pause(bus, "audit")
    bus.execute("select mbus.drop_consumer('q', 'audit')")
    bus.execute("select mbus.create_consumer('q', 'audit')")
    post(bus, 1)
    assert take(bus, whose="q_by_audit") == ["1"]
    pause(bus)
    bus.execute("select mbus.drop_queue('q')")
    bus.execute("select mbus.create_queue('q')")
    post(bus, 2)
    assert take(bus) == ["2"]


def test_functions_of_a_queue_that_was_resumed_are_those_from_before(bus: Connection) -> None:
    # As the snapshots of generated functions show, consumers that are not paused check nothing.
    texts = sql.SQL(
        "select string_agg(pg_get_functiondef(p.oid), '' order by p.proname) from pg_proc p"
        " where p.pronamespace = 'mbus'::regnamespace and p.proname ~ '_q($|_by_)'"
    ).as_string()
    before = one(bus, texts)
    pause(bus)
    assert one(bus, texts) != before
    resume(bus)
    assert one(bus, texts) == before


def test_another_session_takes_nothing_from_the_commit_on(live: str, connect: Connect) -> None:
    taking, pausing = connect(live, autocommit=True), connect(live)
    post(taking, 1)
    post(taking, 2)
    # Its plans and functions are cached now.
    assert take(taking, 1) == ["1"]
    pause(pausing)
    pausing.commit()
    assert take(taking) == []
    resume(pausing)
    pausing.commit()
    assert take(taking) == ["2"]
