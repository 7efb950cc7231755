"""The order within a group when a transaction commits between two statements of a take.

The transaction has drawn its ids before others, and its messages of one group become visible
together. No take may see a later one and not the earlier one.
"""

from __future__ import annotations

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import lease, maintain, post, rows, take

pytestmark = pytest.mark.both_versions

# A delete from the queue waits for this lock when it has removed its rows.
HOLD = """
    create function public.hold() returns trigger language plpgsql as
      'begin perform pg_advisory_xact_lock_shared(4711); return null; end'"""


@pytest.fixture(params=["direct", "fanout"])
def prefix(request: pytest.FixtureRequest, live: str, connect: Connect) -> str:
    """Give the names of the tables from which consumer default takes, without the slot."""
    connection = connect(live, autocommit=True)
    connection.execute(
        "create or replace function mbus._slot_bytes() returns bigint"
        " language sql immutable parallel safe return 1"
    )
    post(connection, "warm", "group=>w")
    # The tables of the second slot, which the next run would open.
    maintain(connection)
    if request.param == "fanout":
        connection.execute("select mbus.create_consumer('q', 'other')")
    assert take(connection) == ["warm"]
    return "qt$q$" if request.param == "direct" else "qc$q$default$"


def seal(connection: Connection) -> None:
    """Let the next post go to the next slot."""
    connection.execute(
        """select setval('mbus."qs$q$tail"', pg_sequence_last_value('mbus."qs$q$tail"') + 1)"""
    )


def hold_hint(connection: Connection, table: str) -> None:
    """Let takes wait before they read a table, until this transaction ends."""
    connection.execute(f'alter sequence mbus."{table}$hint" no cycle'.encode())


def test_messages_that_appear_during_a_take_come_in_order(
    in_thread: InThread, live: str, connect: Connect, prefix: str
) -> None:
    poster, holder = connect(live), connect(live)
    other, taker = connect(live, autocommit=True), connect(live, autocommit=True)
    other.execute(HOLD)
    other.execute(
        f'create trigger hold after delete on mbus."{prefix}0"'
        " for each statement execute function public.hold()".encode()
    )
    post(poster, "a1", "group=>a")
    post(other, "b1", "group=>b")
    post(poster, "a2", "group=>a")
    holder.execute("select pg_advisory_xact_lock(4711)")
    taking = in_thread(take, taker)
    wait_until_blocked(other, taker.info.backend_pid)
    poster.commit()
    holder.commit()
    assert taking.result() == ["b1"]
    assert take(taker) == ["a1"]
    assert take(taker) == ["a2"]


def test_messages_of_two_slots_that_appear_during_a_take_come_in_order(
    in_thread: InThread, live: str, connect: Connect, prefix: str
) -> None:
    poster, holder = connect(live), connect(live)
    other, taker = connect(live, autocommit=True), connect(live, autocommit=True)
    post(poster, "a1", "group=>a")
    consumed = post(poster, "c1", "group=>c")
    seal(other)
    for name in ("a2", "c2"):
        post(poster, name, f"group=>{name[0]}")
    post(other, "b1", "group=>b")
    hold_hint(holder, f"{prefix}1")
    taking = in_thread(take, taker)
    wait_until_blocked(other, taker.info.backend_pid)
    poster.commit()
    # A message that is gone from the older slot does not hold back the next one.
    assert len(rows(other, "select from mbus.take_from_q_by_default(%s)", consumed)) == 1
    holder.rollback()
    assert taking.result() == ["c2", "b1"]
    assert take(taker) == ["a1"]
    assert take(taker) == ["a2"]


def test_a_slot_that_is_used_again_during_a_take_is_left_to_the_next(
    in_thread: InThread, live: str, connect: Connect, prefix: str
) -> None:
    other, taker = connect(live, autocommit=True), connect(live, autocommit=True)
    holder = connect(live)
    other.execute("update mbus.queue set slots = 2")
    other.execute("select mbus._generate(q) from mbus.queue q")
    seal(other)
    hold_hint(holder, f"{prefix}0")
    taking = in_thread(take, taker)
    wait_until_blocked(other, taker.info.backend_pid)
    post(other, "a1", "group=>a")
    # As maintenance does: the head passes the empty slot, and the tail enters it.
    other.execute("""select setval('mbus."qs$q$head"', 1)""")
    seal(other)
    post(other, "a2", "group=>a")
    holder.rollback()
    assert taking.result() == []
    assert take(taker) == ["a1"]
    assert take(taker) == ["a2"]


def test_a_take_of_one_passes_what_others_hold(live: str, connect: Connect, prefix: str) -> None:
    first, second = connect(live), connect(live, autocommit=True)
    for number in (1, 2):
        for group in range(30):
            post(first, f"{group}.{number}", f"group=>{group}")
    for number in range(30):
        post(first, f"free {number}")
    first.commit()
    assert len(lease(first, 30)) == 30
    first.commit()
    assert len(take(first, 20)) == 20
    post(second, "last", "group=>last")
    assert take(second, 1) == ["free 20"]
    assert take(second, 30)[-1] == "last"
    assert take(second) == []
