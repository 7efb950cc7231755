"""A key that only one pending message has; debounced messages replace the one that waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import DatabaseClock, wait_until_blocked
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, lease, maintain, one, post, refused, rows, shift_clock, take

pytestmark = pytest.mark.both_versions

KEY = "unique_key=>k"
TAKEN = "unique_key=>k, unique_until=>taken"
DEBOUNCED = 'unique_key=>k, debounce=>"10 seconds"'


def test_a_second_message_is_not_added_while_the_first_is_pending(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    assert post(bus, 2, KEY) == first
    assert post(bus, 3, "unique_key=>other") != first
    assert take(bus) == ["1", "3"]
    assert post(bus, 4, KEY) != first
    assert take(bus) == ["4"]


def test_batches_keep_keys_unique(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    posted = one(
        bus,
        "select mbus.postn_q(array['n=>2', 'n=>3', 'n=>4']::hstore[],"
        " array['unique_key=>k', 'unique_key=>l', 'unique_key=>l']::hstore[])",
    )
    assert posted[0] == first
    assert posted[1] == posted[2]
    assert take(bus) == ["1", "3"]


def test_keys_belong_to_their_queue_and_end_with_it(bus: Connection) -> None:
    post(bus, 1, KEY)
    bus.execute("select mbus.create_queue('other')")
    post(bus, 2, KEY, queue="other")
    assert take(bus, whose="other_by_default") == ["2"]
    bus.execute("select mbus.drop_queue('other')")
    assert one(bus, "select count(*) from mbus.unique_key") == 1


@pytest.mark.parametrize("until", ["done", "taken"])
def test_a_leased_message_is_pending_until_it_is_acked(bus: Connection, until: str) -> None:
    headers = f"unique_key=>k, unique_until=>{until}"
    first = post(bus, 1, headers)
    _, iid, token, _ = lease(bus)[0]
    second = post(bus, 2, headers)
    assert (second == first) == (until == "done")
    bus.execute("select mbus.ack(%s, %s)", (iid, token))
    assert post(bus, 3, headers) not in (first, None)
    assert take(bus) == (["3"] if until == "done" else ["2"])


@pytest.mark.parametrize("headers", [KEY, TAKEN, KEY + ", group=>g", TAKEN + ", group=>g"])
def test_a_message_whose_lease_ended_or_that_is_retried_is_pending(
    bus: Connection, headers: str
) -> None:
    first = post(bus, 1, headers)
    lease(bus, ttl="10 seconds")
    shift_clock(bus, timedelta(seconds=11))
    maintain(bus)
    assert post(bus, 2, headers) == first
    _, iid, token, _ = lease(bus)[0]
    bus.execute("select mbus.nack(%s, %s, '1 hour', 'no')", (iid, token))
    assert post(bus, 3, headers) == first


def test_a_delayed_message_is_pending(bus: Connection) -> None:
    first = post(bus, 1, KEY, delayed_until="2100-01-01")
    assert post(bus, 2, KEY) == first
    assert take(bus) == []


def test_an_expired_message_is_not_pending(bus: Connection) -> None:
    soon = one(bus, "select mbus.now() + interval '10 seconds'")
    first = post(bus, 1, KEY, expires=soon)
    assert post(bus, 2, KEY) == first
    shift_clock(bus, timedelta(seconds=11))
    assert post(bus, 3, KEY) != first
    assert take(bus) == ["3"]


def test_a_dead_message_is_not_pending_until_it_is_redriven(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    _, iid, token, _ = lease(bus)[0]
    bus.execute("select mbus.nack(%s, %s, park => true)", (iid, token))
    maintain(bus)
    bus.execute("savepoint dead")
    assert post(bus, 2, KEY) != first
    bus.execute("rollback to savepoint dead")
    bus.execute("select mbus.redrive('q')")
    assert post(bus, 3, KEY) == first
    assert take(bus) == ["1"]


def test_a_removed_message_is_not_pending(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    bus.execute("select mbus.take(%s)", (first,))
    second = post(bus, 2, KEY)
    bus.execute("select mbus.purge('q')")
    assert len({first, second, post(bus, 3, KEY)}) == 3
    assert take(bus) == ["3"]


def test_a_message_is_pending_until_all_its_consumers_are_done(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'c')")
    bus.execute("select mbus.create_consumer('q', 'never', 'false')")
    first = post(bus, 1, KEY)
    assert take(bus) == ["1"]
    assert post(bus, 2, KEY) == first
    assert take(bus, whose="q_by_c") == ["1"]
    assert post(bus, 3, KEY) != first


def test_a_message_that_a_cursor_has_not_passed_is_pending(live: str, connect: Connect) -> None:
    bus = connect(live, autocommit=True)
    bus.execute("select mbus.create_consumer('q', 'c', contract => 'cursor')")
    first = post(bus, 1, KEY)
    assert take(bus) == ["1"]
    assert post(bus, 2, KEY) == first
    assert take(bus, whose="q_by_c") == ["1"]
    assert post(bus, 3, KEY) != first


def test_a_message_given_back_keeps_its_key(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    bus.execute("select mbus.give_back('default', c) from mbus.consume_q_by_default() c")
    assert post(bus, 2, KEY) == first


def test_followers_get_what_was_added(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('r')")
    bus.execute("select mbus.create_trigger('q', 'r')")
    post(bus, 1, KEY)
    post(bus, 2, KEY)
    post(bus, 3, "dedup_key=>d")
    post(bus, 4, "dedup_key=>d")
    take(bus)
    post(bus, 5, KEY)
    assert take(bus, whose="r_by_default") == ["1", "3", "5"]


def test_a_repetition_by_dedup_key_gets_the_iid_of_the_pending_message(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    assert post(bus, 2, KEY + ", dedup_key=>d") == first
    take(bus)
    assert post(bus, 2, KEY + ", dedup_key=>d") == first
    assert take(bus) == []


def test_wrong_headers_are_refused(bus: Connection) -> None:
    for headers in (
        "unique_key=>k, unique_until=>never",
        "debounce=>1s",
        "unique_key=>k, debounce=>soon",
        "unique_key=>k, debounce=>1s, consume_after=>q.1@x",
        f"unique_key=>{'k' * 501}",
    ):
        with refused(bus, "MB012"):
            post(bus, 1, headers)
    with refused(bus, "MB012"):
        post(bus, 1, DEBOUNCED, delayed_until="2100-01-01")


def test_a_message_that_is_being_consumed_is_pending_until_the_commit(
    live: str, connect: Connect
) -> None:
    consumer, poster = connect(live), connect(live, autocommit=True)
    first = post(poster, 1, KEY)
    assert take(consumer) == ["1"]
    assert post(poster, 2, KEY) == first
    assert post(poster, 2, TAKEN) != first
    consumer.rollback()
    assert len(take(consumer)) == 2


def test_consuming_and_posting_in_one_transaction_posts(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    assert take(bus) == ["1"]
    assert post(bus, 2, KEY) != first


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("was_pending", [True, False])
def test_of_two_posters_the_second_waits_for_the_first(
    live: str, connect: Connect, in_thread: InThread, is_committed: bool, was_pending: bool
) -> None:
    first, second, observer = connect(live), connect(live), connect(live, autocommit=True)
    if not was_pending:
        post(observer, 0, KEY)
        take(observer)
    iid = post(first, 1, KEY)
    posting = in_thread(post, second, 2, KEY)
    wait_until_blocked(observer, second.info.backend_pid)
    first.commit() if is_committed else first.rollback()
    assert (posting.result() == iid) == is_committed
    second.commit()
    assert take(observer) == ["1" if is_committed else "2"]


def test_a_pending_message_is_not_taken_before_the_poster_commits(
    live: str, connect: Connect
) -> None:
    poster, worker = connect(live), connect(live, autocommit=True)
    first = post(worker, 1, KEY)
    assert post(poster, 2, KEY) == first
    assert take(worker) == []
    poster.commit()
    assert take(worker) == ["1"]


def test_concurrent_posters_and_workers_leave_no_key_twice(live: str, connect: Connect) -> None:
    posters = [connect(live, autocommit=True) for _ in range(3)]
    worker, counted = connect(live, autocommit=True), connect(live, autocommit=True)

    def post_all(session: Connection) -> None:
        for number in range(200):
            post(session, number, f"unique_key=>{number % 5}, unique_until=>taken")

    with ThreadPoolExecutor(3) as pool:
        posting = [pool.submit(post_all, session) for session in posters]
        while not all(each.done() for each in posting):
            keys = column(worker, "select headers->'unique_key' from mbus.consumen_q_by_default(9)")
            assert len(keys) == len(set(keys))
            maintain(counted, None)
        for each in posting:
            each.result()


def test_an_older_snapshot_is_refused(live: str, connect: Connect) -> None:
    session = connect(live)
    session.execute("set transaction isolation level repeatable read")
    with refused(session, "MB014"):
        post(session, 1, KEY)


def test_maintenance_forgets_the_keys_of_messages_that_are_gone(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    bus = connect(live, autocommit=True)
    for number in range(5):
        post(bus, number, f"unique_key=>{number}")
    take(bus, 2)
    _, iid, token, _ = lease(bus)[0]
    bus.execute("select mbus.nack(%s, %s, park => true)", (iid, token))
    for _ in range(10):
        maintain(bus, None)
    assert column(bus, "select key from mbus.unique_key order by key") == ["2", "3", "4"]


def test_a_debounced_post_replaces_the_one_that_waits(bus: Connection) -> None:
    first = post(bus, 1, DEBOUNCED)
    shift_clock(bus, timedelta(seconds=8))
    assert post(bus, 2, DEBOUNCED, properties="p=>1") == first
    shift_clock(bus, timedelta(seconds=16))
    maintain(bus)
    assert take(bus) == []
    shift_clock(bus, timedelta(seconds=19))
    maintain(bus)
    found = rows(bus, "select data->'n', iid, properties->'p' from mbus.consume_q_by_default()")
    assert found == [("2", first, "1")]


def test_a_key_expires_with_the_last_debounced_post(bus: Connection) -> None:
    now = one(bus, "select mbus.now()")
    first = post(bus, 1, DEBOUNCED, expires=now + timedelta(seconds=20))
    assert post(bus, 2, DEBOUNCED, expires=now + timedelta(hours=1)) == first
    shift_clock(bus, timedelta(seconds=30))
    maintain(bus)
    assert post(bus, 3, KEY) == first
    assert take(bus) == ["2"]


def test_a_message_that_is_due_is_not_replaced(bus: Connection) -> None:
    first = post(bus, 1, DEBOUNCED)
    shift_clock(bus, timedelta(seconds=10))
    second = post(bus, 2, DEBOUNCED)
    assert second != first
    maintain(bus)
    assert take(bus) == ["1"]
    assert post(bus, 3, DEBOUNCED) == second


def test_a_message_that_is_retried_is_not_replaced(bus: Connection) -> None:
    first = post(bus, 1, KEY)
    _, iid, token, _ = lease(bus)[0]
    bus.execute("select mbus.nack(%s, %s, '1 hour', 'no')", (iid, token))
    assert post(bus, 2, DEBOUNCED) != first


def test_postponing_has_a_limit(bus: Connection) -> None:
    headers = DEBOUNCED + ', max_debounce=>"25 seconds"'
    for second in (0, 8, 16, 24):
        shift_clock(bus, timedelta(seconds=second))
        post(bus, second, headers)
    shift_clock(bus, timedelta(seconds=26))
    maintain(bus)
    assert take(bus) == ["24"]


def test_selectors_decide_about_the_last_message(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'c', '(t.data->''n'')=''2''')")
    for number in (1, 2):
        post(bus, number, DEBOUNCED)
    shift_clock(bus, timedelta(seconds=11))
    maintain(bus)
    assert take(bus, whose="q_by_c") == ["2"]
    assert take(bus) == ["2"]


def test_followers_debounce_too(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('r')")
    bus.execute("select mbus.create_trigger('q', 'r')")
    for number in (1, 2):
        post(bus, number, DEBOUNCED)
    shift_clock(bus, timedelta(seconds=11))
    maintain(bus, None)
    assert take(bus, whose="r_by_default") == ["2"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_debounced_post_meets_the_one_that_is_replacing(
    live: str, connect: Connect, in_thread: InThread, clock: DatabaseClock, is_committed: bool
) -> None:
    first, second, observer = connect(live), connect(live), connect(live, autocommit=True)
    iid = post(observer, 0, DEBOUNCED)
    assert post(first, 1, DEBOUNCED) == iid
    posting = in_thread(post, second, 2, DEBOUNCED)
    wait_until_blocked(observer, second.info.backend_pid)
    clock.advance(timedelta(seconds=11))
    first.commit() if is_committed else first.rollback()
    posted = posting.result()
    second.commit()
    clock.advance(timedelta(seconds=11))
    maintain(observer)
    assert take(observer) == ["2"]
    assert posted == iid
