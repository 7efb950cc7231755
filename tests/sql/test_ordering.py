"""consume_after: a message becomes available exactly when all its predecessors are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import (
    ack,
    column,
    lease,
    maintain,
    nack,
    one,
    post,
    refused,
    shift_clock,
    status,
    take,
)


def after(*iids: str) -> str:
    return f'consume_after=>"{{{",".join(iids)}}}"'


@pytest.fixture
def two(bus: Connection) -> Connection:
    """Give the rolled-back connection with the queues q and r."""
    bus.execute("select mbus.create_queue('r')")
    return bus


@pytest.fixture
def live_two(live: str, connect: Connect) -> str:
    with connect(live) as connection:
        connection.execute("select mbus.create_queue('r')")
    return live


def take_r(connection: Connection) -> list[str]:
    return take(connection, 100, "r_by_default")


def left_behind(connection: Connection) -> list[int]:
    maintain(connection, None)
    return column(
        connection,
        "select count(*) from mbus.blocked union all select count(*) from mbus.wait"
        # The look two seconds after the first successor of a queue finds nothing to do.
        " union all select count(*) from mbus.nudge where not_before is null",
    )


def test_a_successor_waits_for_its_predecessor(two: Connection) -> None:
    before = post(two, "first")
    post(two, "second", after(before), queue="r")
    assert take_r(two) == []
    assert take(two) == ["first"]
    assert take_r(two) == ["second"]
    assert left_behind(two) == [0, 0, 0]


@pytest.mark.parametrize("group", ["", "group=>{}, "], ids=["on_the_ring", "aside"])
def test_an_ack_after_the_lease_releases_nothing(two: Connection, group: str) -> None:
    for name in ("kept", "ended"):
        iid = post(two, name, group.format(name))
        post(two, f"after {name}", after(iid), queue="r")
    (_, kept, held, _), (_, ended, lost, _) = lease(two, 2)
    two.execute("select mbus.extend(%s, %s, '1 hour')", (kept, held))
    shift_clock(two, timedelta(minutes=1))
    assert one(
        two, "select mbus.ackn_q_by_default(%s, %s::bigint[])", [kept, ended], [held, lost]
    ) == [lost]
    assert take_r(two) == ["after kept"]


def test_other_rows_say_nothing_of_a_held_copy(live: str, connect: Connect) -> None:
    first, second = connect(live), connect(live)
    first.execute("select mbus.create_consumer('q', 'other')")
    first.execute("select mbus.create_queue('r')")
    later = one(first, "select mbus.now() + interval '1 hour'")
    number = int(post(first, 1).partition(".")[2].partition("@")[0])
    # The same number on another queue, and another number on this one.
    same = post(first, 1, queue="r", delayed_until=later)
    assert same.startswith(f"r.{number}@")
    post(first, 2, delayed_until=later)
    for name in ("default", "other"):
        ((_, iid, token, _),) = lease(first, whose=f"q_by_{name}")
        nack(first, iid, token, delay="1 hour")
    first.commit()
    state = (
        "select mbus._state(q, c.id, %s) from mbus.queue q"
        " join mbus.consumer c on c.queue_id = q.id where q.name = 'q' and c.name = %s"
    )
    assert [one(second, state, number, name) for name in ("default", "other")] == ["there", "there"]
    second.rollback()
    first.execute(
        "delete from mbus.delayed d using mbus.consumer c"
        " where c.id = d.consumer_id and c.name = 'default'"
    )
    assert [one(second, state, number, name) for name in ("default", "other")] == ["held", "there"]


def test_a_single_iid_needs_no_braces(two: Connection) -> None:
    before = post(two, "first")
    post(two, "second", f'consume_after=>"{before}"')
    assert take(two) == ["first"]
    assert take(two) == ["second"]


def test_all_predecessors_must_be_done(two: Connection) -> None:
    iids = [post(two, n) for n in range(3)]
    post(two, "last", after(*iids), queue="r")
    assert take(two, 2) == ["0", "1"]
    assert take_r(two) == []
    assert take(two) == ["2"]
    assert take_r(two) == ["last"]


def test_others_see_the_successor_from_the_commit_on(live_two: str, connect: Connect) -> None:
    first, second = connect(live_two), connect(live_two, autocommit=True)
    before = post(first, "first")
    post(first, "second", after(before), queue="r")
    first.commit()
    assert take(first) == ["first"]
    assert take_r(second) == []
    first.commit()
    assert take_r(second) == ["second"]


def test_a_rollback_blocks_the_successor_again(live_two: str, connect: Connect) -> None:
    first = connect(live_two)
    before = post(first, "first")
    post(first, "second", after(before), queue="r")
    first.commit()
    assert take(first) == ["first"]
    assert take_r(first) == ["second"]
    first.rollback()
    assert take_r(first) == []
    assert take(first) == ["first"]


def test_every_subscriber_must_have_the_predecessor(two: Connection) -> None:
    two.execute("select mbus.create_consumer('q', 'c2')")
    before = post(two, "first")
    post(two, "second", after(before), queue="r")
    assert take(two) == ["first"]
    assert take_r(two) == []
    assert take(two, 1, "q_by_c2") == ["first"]
    assert take_r(two) == ["second"]


def test_a_subscriber_whose_selector_refused_it_is_not_waited_for(two: Connection) -> None:
    two.execute("select mbus.create_consumer('q', 'c2', $$t.data->'n' = 'other'$$)")
    before = post(two, "first")
    post(two, "second", after(before), queue="r")
    assert take(two) == ["first"]
    assert take_r(two) == ["second"]


def lease_and(answer: Callable[[Connection, str, int], object]) -> Callable[[Connection], None]:
    def act(connection: Connection) -> None:
        ((_, iid, token, _),) = lease(connection)
        answer(connection, iid, token)

    return act


@pytest.mark.parametrize(
    "not_done",
    [
        lease_and(lambda *_: None),
        lease_and(lambda connection, iid, token: nack(connection, iid, token, delay="1 hour")),
        lease_and(lambda connection, iid, token: nack(connection, iid, token, delay="0")),
        lease_and(lambda connection, iid, token: nack(connection, iid, token, park=True)),
    ],
    ids=["leased", "delayed", "given back", "dead"],
)
def test_what_is_not_done_is_waited_for(
    two: Connection, not_done: Callable[[Connection], None]
) -> None:
    before = post(two, "first")
    not_done(two)
    post(two, "second", after(before), queue="r")
    maintain(two, None)
    assert take_r(two) == []
    one(two, "select count(*) from mbus.take(%s)", before)
    assert take_r(two) == ["second"]


def test_an_ack_and_many_acks_are_done(two: Connection) -> None:
    iids = [post(two, n) for n in range(3)]
    for iid in iids:
        post(two, f"after {iid.split('@')[0]}", after(iid), queue="r")
    (_, iid, token, _), *others = lease(two, 3)
    ack(two, iid, token)
    assert len(take_r(two)) == 1
    two.execute("select mbus.ackn(%s, %s)", ([o[1] for o in others], [o[2] for o in others]))
    assert len(take_r(two)) == 2


def test_a_reserved_iid_is_waited_for_until_it_is_posted_and_done(two: Connection) -> None:
    before = one(two, "select mbus.get_iid('q')")
    post(two, "second", after(before), queue="r")
    maintain(two, None)
    assert take_r(two) == []
    post(two, "first", iid=before)
    assert take_r(two) == []
    assert take(two) == ["first"]
    assert take_r(two) == ["second"]


def test_what_was_done_before_the_post_blocks_nothing(two: Connection) -> None:
    before = post(two, "first")
    assert take(two) == ["first"]
    post(two, "second", after(before), queue="r")
    assert take_r(two) == ["second"]
    assert left_behind(two) == [0, 0, 0]


def test_put_back_under_its_old_iid_it_is_not_done(live_two: str, connect: Connect) -> None:
    connection = connect(live_two)
    before = post(connection, "first")
    post(connection, "second", after(before), queue="r")
    connection.commit()
    assert take(connection) == ["first"]
    post(connection, "first again", iid=before)
    connection.commit()
    assert take_r(connection) == []
    assert take(connection) == ["first again"]
    assert take_r(connection) == ["second"]


def test_rejected_it_is_not_done(live_two: str, connect: Connect) -> None:
    connection = connect(live_two, autocommit=True)
    before = post(connection, "first")
    post(connection, "second", after(before), queue="r")
    assert one(connection, "select mbus.reject('q', 'default', %s, '0')", before) == "ready"
    assert take_r(connection) == []
    assert take(connection) == ["first"]
    assert take_r(connection) == ["second"]


def test_a_blocked_message_can_be_taken_and_releases_its_own_successors(two: Connection) -> None:
    first = post(two, "first")
    second = post(two, "second", after(first))
    post(two, "third", after(second), queue="r")
    assert one(two, "select data->'n' from mbus.take(%s)", second) == "second"
    assert take_r(two) == ["third"]


@pytest.mark.both_versions
def test_delay_counts_from_the_post_not_from_the_release(two: Connection) -> None:
    before = post(two, "first")
    post(
        two,
        "second",
        after(before),
        queue="r",
        delayed_until=one(two, "select mbus.now() + interval '1 hour'"),
    )
    assert take(two) == ["first"]
    assert take_r(two) == []
    shift_clock(two, timedelta(hours=2))
    assert take_r(two) == ["second"]


@pytest.mark.parametrize("lost", ["dmq", "release", None])
def test_an_expired_predecessor_is_lost(two: Connection, lost: str | None) -> None:
    before = post(two, "first", expires=one(two, "select mbus.now() + interval '1 hour'"))
    policy = f", consume_after_lost=>{lost}" if lost else ""
    post(two, "second", after(before) + policy, queue="r")
    shift_clock(two, timedelta(hours=2))
    maintain(two, None)
    assert take_r(two) == (["second"] if lost == "release" else [])
    dead = column(two, "select error from mbus.dead where queue = 'r'")
    assert len(dead) == (0 if lost == "release" else 1)
    assert all(error.startswith("lost") for error in dead)
    assert left_behind(two) == [0, 0, 0]


def test_a_dropped_queue_loses_what_was_waited_for(two: Connection) -> None:
    before = post(two, "first")
    post(two, "second", after(before), queue="r")
    two.execute("select mbus.drop_queue('q')")
    assert column(two, "select queue from mbus.dead") == ["r"]


def test_a_dropped_consumer_is_not_waited_for(two: Connection) -> None:
    two.execute("select mbus.create_consumer('q', 'c2')")
    before = post(two, "first")
    post(two, "second", after(before), queue="r")
    assert take(two) == ["first"]
    two.execute("select mbus.drop_consumer('q', 'c2')")
    assert take_r(two) == ["second"]


@pytest.mark.both_versions
def test_circles_are_refused(two: Connection) -> None:
    reserved = one(two, "select mbus.get_iid('q')")
    second = post(two, "second", after(reserved), queue="r")
    third = post(two, "third", after(second), queue="r")
    with refused(two, "MB021"):
        post(two, "first", after(third), iid=reserved)
    with refused(two, "MB021"):
        post(two, "itself", after(reserved), iid=reserved)
    post(two, "first", iid=reserved)
    assert take(two) == ["first"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ("consume_after=>nowhere.1@x", "MB001"),
        ("consume_after=>q.999@abcdef", "MB009"),
        ('consume_after=>"{q.1"', "MB012"),
        ("consume_after=>IID, consume_after_lost=>perhaps", "MB012"),
    ],
)
def test_bad_predecessors_are_refused(two: Connection, headers: str, code: str) -> None:
    before = post(two, "first")
    with refused(two, code):
        post(two, "second", headers.replace("IID", f'"{before}"'))
    assert one(two, "select count(*) from mbus.blocked") == 0
    assert status(two, "depth") == 1


def test_many_successors_are_released_by_maintenance(two: Connection) -> None:
    before = post(two, "first")
    two.execute(
        "select count(mbus.post_r('n=>x', hstore('consume_after', %s)))"
        " from generate_series(1, 250)",
        (before,),
    )
    assert status(two, "blocked", "r") == 250
    maintain(two, None)
    assert take(two) == ["first"]
    inline = len(take(two, 1000, "r_by_default"))
    assert 100 <= inline < 250, "the consumer of the predecessor pays for its share only"
    maintain(two, None)
    assert inline + len(take(two, 1000, "r_by_default")) == 250
    assert left_behind(two) == [0, 0, 0]


def test_two_last_predecessors_at_once_release_their_successor(
    live_two: str, connect: Connect
) -> None:
    first, second, other = connect(live_two), connect(live_two), connect(live_two, autocommit=True)
    iids = [post(other, 1), post(other, 2)]
    post(other, "last", after(*iids), queue="r")
    assert (take(first, 1), take(second, 1)) == (["1"], ["2"])
    first.commit()
    second.commit()
    maintain(other, None)
    assert take_r(other) == ["last"]
    assert left_behind(other) == [0, 0, 0]


def test_a_predecessor_in_somebodys_hands_at_the_post_is_not_forgotten(
    live_two: str, connect: Connect
) -> None:
    holder, other = connect(live_two), connect(live_two, autocommit=True)
    before = post(other, "first")
    assert take(holder) == ["first"]
    post(other, "second", after(before), queue="r")
    maintain(other, None)
    assert take_r(other) == [], "it may still come back"
    holder.commit()
    maintain(other, None)
    assert take_r(other) == ["second"]


def test_without_maintenance_a_plain_consume_decides(live_two: str, connect: Connect) -> None:
    first, second, other = connect(live_two), connect(live_two), connect(live_two, autocommit=True)
    iids = [post(other, 1), post(other, 2)]
    post(other, "last", after(*iids), queue="r")
    assert (take(first, 1), take(second, 1)) == (["1"], ["2"])
    first.commit()
    second.commit()
    assert take_r(other) == ["last"]


def test_who_waits_for_a_reserved_iid_waits_for_the_transaction_that_posts_it(
    live_two: str, connect: Connect, in_thread: InThread
) -> None:
    poster, waiter, other = connect(live_two), connect(live_two), connect(live_two, autocommit=True)
    reserved = one(other, "select mbus.get_iid('q')")
    post(other, "warm", after(reserved), queue="r")
    post(poster, "first", iid=reserved)
    posted = in_thread(post, waiter, "second", after(reserved), queue="r")
    wait_until_blocked(other, waiter.info.backend_pid)
    poster.commit()
    posted.result(timeout=10)
    waiter.commit()
    assert take_r(other) == []
    assert take(other) == ["first"]
    assert sorted(take_r(other)) == ["second", "warm"]


def test_a_message_that_moves_is_never_taken_for_done(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    mover, observer = connect(live, autocommit=True), connect(live, autocommit=True)
    post(observer, 1)
    enough = threading.Event()

    def move() -> None:
        while not enough.is_set():
            # None when the observer looks at it just now.
            for _, iid, token, _ in lease(mover):
                nack(mover, iid, token, delay="0")

    observer.execute("update mbus.consumer set max_attempts = 1000000")
    moving = in_thread(move)
    state = (
        "select mbus._state(q, c.id, 1) from mbus.queue q join mbus.consumer c on c.queue_id = q.id"
    )
    try:
        seen = {one(observer, state) for _ in range(500)}
    finally:
        enough.set()
    moving.result()
    assert seen <= {"there", "leased", "held"}


def test_a_reserved_predecessor_that_nobody_wants_is_done_when_it_is_posted(
    two: Connection,
) -> None:
    two.execute("select mbus.create_queue('picky')")
    two.execute("select mbus.create_consumer('picky', 'never', $$false$$)")
    two.execute("select mbus.drop_consumer('picky', 'default')")
    reserved = one(two, "select mbus.get_iid('picky')")
    post(two, 2, after(reserved), queue="r")
    assert take_r(two) == []
    post(two, 1, queue="picky", iid=reserved)
    assert take_r(two) == ["2"]
    assert left_behind(two) == [0, 0, 0]


def test_who_waits_for_a_reserved_iid_learns_that_its_message_was_a_duplicate(
    two: Connection,
) -> None:
    post(two, 1, "dedup_key=>k")
    reserved = one(two, "select mbus.get_iid('q')")
    post(two, 2, after(reserved), queue="r")
    post(two, 3, after(reserved) + ",consume_after_lost=>release", queue="r")
    post(two, 1, "dedup_key=>k", iid=reserved)
    maintain(two, None)
    assert take_r(two) == ["3"]
    assert status(two, "dmq", queue="r") == 1


@pytest.mark.both_versions
def test_a_purged_predecessor_is_lost(two: Connection) -> None:
    first = post(two, 1)
    post(two, 2, after(first), queue="r")
    two.execute("select mbus.purge('q')")
    assert take_r(two) == []
    assert status(two, "dmq", queue="r") == 1


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_predecessor_of_an_open_transaction_is_not_done(
    live_two: str, connect: Connect, is_reserved: bool
) -> None:
    first, second = connect(live_two), connect(live_two, autocommit=True)
    iid = one(first, "select mbus.get_iid('q')") if is_reserved else post(first, 1)
    post(second, 2, after(iid), queue="r")
    maintain(second, None)
    assert take_r(second) == []
    first.commit()
    maintain(second, None)
    assert take_r(second) == []
    if is_reserved:
        post(second, 1, iid=iid)
        maintain(second, None)
        assert take_r(second) == []
    assert take(second) == ["1"]
    maintain(second, None)
    assert take_r(second) == ["2"]
    assert left_behind(second) == [0, 0, 0]


@pytest.mark.both_versions
def test_a_predecessor_whose_transaction_rolls_back_never_was(
    live_two: str, connect: Connect
) -> None:
    first, second = connect(live_two), connect(live_two, autocommit=True)
    iid = post(first, 1)
    post(second, 2, after(iid), queue="r")
    first.rollback()
    maintain(second, None)
    assert take_r(second) == ["2"]
    assert left_behind(second) == [0, 0, 0]


@pytest.mark.parametrize("how", ["take", "reject"])
@pytest.mark.parametrize("second", [False, True])
def test_an_expired_predecessor_that_somebody_wants_is_lost_all_the_same(
    two: Connection, how: str, second: bool
) -> None:
    if second:
        two.execute("select mbus.create_consumer('q', 'second')")
    first = post(two, 1, expires=one(two, "select mbus.now() + '1 minute'"))
    post(two, 2, f"{after(first)},consume_after_lost=>release", queue="r")
    shift_clock(two, timedelta(minutes=2))
    call = "mbus.take(%s)" if how == "take" else "mbus.reject('q', 'default', %s)"
    two.execute(f"select {call}".encode(), (first,))
    assert take(two, whose="r_by_default") == []
    maintain(two, None)
    maintain(two, None)
    assert take(two, whose="r_by_default") == ["2"]


def test_an_expired_retry_of_a_group_is_lost(two: Connection) -> None:
    first = post(two, 1, "group=>a", expires=one(two, "select mbus.now() + '1 minute'"))
    post(two, 2, f"{after(first)},consume_after_lost=>release", queue="r")
    ((_, iid, token, _),) = lease(two)
    nack(two, iid, token, delay="0")
    shift_clock(two, timedelta(minutes=2))
    assert take(two) == []
    assert take(two, whose="r_by_default") == ["2"]


def test_an_expired_message_that_waits_is_not_taken(two: Connection) -> None:
    first = post(two, 1)
    second = post(
        two, 2, after(first), queue="r", expires=one(two, "select mbus.now() + '1 minute'")
    )
    shift_clock(two, timedelta(minutes=2))
    assert column(two, "select iid from mbus.take(%s)", second) == []


def test_a_consumer_that_others_wait_for_can_be_dropped(two: Connection) -> None:
    two.execute("select mbus.create_consumer('q', 'one', $$t.data->'n' = '1'$$)")
    two.execute("select mbus.create_consumer('q', 'two', $$t.data->'n' = '2'$$)")
    two.execute("select mbus.drop_consumer('q', 'default')")
    first = post(two, 1)
    post(two, 2, after(first))
    assert take(two, whose="q_by_two") == []
    two.execute("select mbus.drop_consumer('q', 'one')")
    assert take(two, whose="q_by_two") == ["2"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_order_and_iids_need_read_committed(live: str, connect: Connect, level: str) -> None:
    """An older snapshot does not see what became of the others."""
    with connect(live) as other, connect(live) as mine:
        iid = one(other, "select mbus.get_iid('q')")
        other.commit()
        mine.execute(f"begin isolation level {level}".encode())
        with refused(mine, "MB014"):
            post(mine, 1, iid=iid)
        with refused(mine, "MB014"):
            post(mine, 1, after(iid))
        assert post(mine, 1)
        mine.rollback()
