"""Queues come and go with everything that is named after them."""

from __future__ import annotations

import pytest
from psycopg import Connection
from psycopg.errors import Diagnostic

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, lease, maintain, one, post, post_many, refused, rows, take

RELATIONS = "select count(*) from pg_class where relnamespace = 'mbus'::regnamespace"
# The table, its index of long values and the index of those belong to one table.
RELATIONS_WITH_TOAST = """
    with named as (select * from pg_class where relnamespace = 'mbus'::regnamespace)
    select count(*) from pg_class c
    where c.oid in (select oid from named)
       or c.oid in (select reltoastrelid from named)
       or c.oid in (select i.indexrelid from pg_index i join named on i.indrelid = reltoastrelid)"""
LEFT_OVERS = """
    select relname::text from pg_class where relnamespace = 'mbus'::regnamespace
    union all select proname::text from pg_proc where pronamespace = 'mbus'::regnamespace
    union all select rolname::text from pg_roles
              where starts_with(rolname, 'mbus_' || current_database())
    order by 1"""


def test_a_plain_queue_costs_about_a_dozen_relations(connection: Connection) -> None:
    before = one(connection, RELATIONS_WITH_TOAST)
    connection.execute("select mbus.create_queue('q')")
    assert one(connection, RELATIONS_WITH_TOAST) - before <= 14


def test_the_number_of_slots_costs_nothing_until_they_are_used(connection: Connection) -> None:
    before = one(connection, RELATIONS)
    connection.execute("select mbus.create_queue('small', 2)")
    small = one(connection, RELATIONS) - before
    connection.execute("select mbus.create_queue('large', 256)")
    assert one(connection, RELATIONS) - before == 2 * small


def test_leases_delays_and_groups_make_no_relation(bus: Connection) -> None:
    before = one(bus, RELATIONS)
    post(bus, 1, "group=>a")
    post(bus, 2, "dedup_key=>a")
    bus.execute("select mbus.post_q('n=>3', delayed_until => now() + interval '1 hour')")
    lease(bus)
    assert one(bus, RELATIONS) == before


def test_a_lane_is_made_by_the_first_message_that_needs_it(bus: Connection) -> None:
    before = one(bus, RELATIONS)
    post(bus, 1, "priority=>high")
    one_lane = one(bus, RELATIONS) - before
    assert 0 < one_lane <= 6
    post(bus, 2, "priority=>high")
    assert one(bus, RELATIONS) - before == one_lane


def test_creating_a_queue_again_keeps_its_messages_and_consumers(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 3)
    bus.execute("select mbus.create_queue('q')")
    assert take(bus) == ["1", "2", "3"]
    assert take(bus, whose="q_by_second") == ["1", "2", "3"]


def test_creating_a_queue_again_rebuilds_its_functions(bus: Connection) -> None:
    bus.execute("drop function mbus.consume_q_by_default()")
    bus.execute("select mbus.create_queue('q')")
    post(bus, 1)
    assert one(bus, "select data->'n' from mbus.consume_q_by_default()") == "1"


def test_a_queue_cannot_change_its_payload(bus: Connection) -> None:
    with refused(bus, "MB003"):
        bus.execute("select mbus.create_queue('q', 8, false, 'jsonb')")


def _notices(connection: Connection, query: str) -> list[str]:
    heard: list[str] = []

    def hear(notice: Diagnostic) -> None:
        heard.append(notice.message_primary or "")

    connection.add_notice_handler(hear)
    connection.execute(query.encode())
    connection.remove_notice_handler(hear)
    return heard


def test_a_queue_keeps_its_slots_and_says_so(bus: Connection) -> None:
    post(bus, 1)
    assert _notices(bus, "select mbus.create_queue('q', 16)") == ['queue "q" keeps its ncons 8']
    assert one(bus, "select ncons from mbus.queues") == 8
    assert _notices(bus, "select mbus.create_queue('q', 8)") == []
    assert take(bus) == ["1"]


def test_a_closed_queue_is_not_opened_by_a_call_with_defaults(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('q', is_roles_security_model => true)")
    who = "select is_roles_security_model from mbus.queue"
    assert _notices(connection, "select mbus.create_queue('q')") == ['queue "q" keeps its roles']
    assert one(connection, who) is True
    connection.execute("select mbus.alter_queue('q', false)")
    assert one(connection, who) is False
    connection.execute("select mbus.create_queue('q', is_roles_security_model => true)")
    assert one(connection, who) is True


def test_a_dropped_queue_leaves_nothing_behind(connection: Connection) -> None:
    before = column(connection, LEFT_OVERS)
    connection.execute("select mbus.create_queue('q', is_roles_security_model => true)")
    connection.execute("select mbus.create_consumer('q', 'second', $$t.data->'n' = '1'$$)")
    post(connection, 1, "priority=>high")
    post(connection, 1, "group=>a")
    post(connection, 1, "dedup_key=>a")
    post(connection, 2, delayed_until="2100-01-01")
    lease(connection)
    connection.execute("select mbus.create_view('q')")
    assert column(connection, LEFT_OVERS) != before
    connection.execute("select mbus.drop_queue('q')")
    assert column(connection, LEFT_OVERS) == before
    for table in ("queue", "consumer", "delayed", "leased", "dmq", "dedup", "sample"):
        assert one(connection, f"select count(*) from mbus.{table}") == 0


def test_a_queue_of_the_same_name_starts_empty(bus: Connection) -> None:
    post_many(bus, 3)
    bus.execute("select mbus.drop_queue('q')")
    bus.execute("select mbus.create_queue('q')")
    assert take(bus) == []


def test_a_queue_of_the_same_name_gives_no_iid_again(bus: Connection) -> None:
    """Iids are keys of what others have done: a message under an old one would count as done."""
    given = {one(bus, "select mbus.get_iid('q')"), *post_many(bus, 3)}
    for _ in range(2):
        bus.execute("select mbus.drop_queue('q')")
        bus.execute("select mbus.create_queue('q', payload => 'text')")
        iids = {one(bus, "select mbus.post_q('a')"), one(bus, "select mbus.get_iid('q')")}
        assert not given & iids
        given |= iids
    maintain(bus)
    assert column(bus, "select data from mbus.consumen_q_by_default(10)") == ["a"]
    assert one(bus, "select count(*) from mbus.dropped_queue") == 0


@pytest.mark.parametrize("is_roles_security_model", [True, False])
def test_every_queue_and_consumer_has_its_roles(
    connection: Connection, is_roles_security_model: bool
) -> None:
    connection.execute("select mbus.create_queue('q', 8, %s)", (is_roles_security_model,))
    connection.execute("select mbus.create_consumer('q', 'second')")
    roles = (
        "select replace(rolname, 'mbus_' || current_database() || '_', '') from pg_roles"
        " where starts_with(rolname, 'mbus_' || current_database()) and rolname like '%\\_q%'"
        " order by 1"
    )
    assert column(connection, roles) == ["consume_q_by_default", "consume_q_by_second", "post_q"]
    connection.execute("select mbus.drop_consumer('q', 'second')")
    assert column(connection, roles) == ["consume_q_by_default", "post_q"]
    connection.execute("select mbus.drop_queue('q')")
    assert column(connection, roles) == []


def test_names_may_begin_with_a_digit(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('1c')")
    connection.execute("select mbus.create_consumer('1c', '2nd')")
    connection.execute("select mbus.create_view('1c')")
    iid = one(connection, "select mbus.post('1c', 'n=>1')")
    assert column(connection, "select data->'n' from mbus.consume('1c', '2nd')") == ["1"]
    assert column(connection, "select data->'n' from mbus.take(%s)", iid) == ["1"]


def test_the_views_show_queues_and_consumers(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second', $$t.data->'n' = '1'$$)")
    assert rows(
        bus, "select queue, payload, ncons, consumers, mode, segments from mbus.queues"
    ) == [("q", "hstore", 8, ["default", "second"], "fanout", 1)]
    assert rows(
        bus, "select consumer, selector, max_attempts, backoff::text from mbus.consumers order by 1"
    ) == [("default", None, 10, "00:00:01"), ("second", "t.data->'n' = '1'", 10, "00:00:01")]


def test_two_sessions_that_create_the_same_queue_agree(
    database: str, connect: Connect, in_thread: InThread
) -> None:
    first, second, observer = connect(database), connect(database), connect(database)
    first.execute("select mbus.create_queue('q')")
    creating = in_thread(second.execute, "select mbus.create_queue('q')")
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit()
    creating.result()
    second.commit()
    assert column(observer, "select queue from mbus.queues") == ["q"]
