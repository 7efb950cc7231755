"""The pure parts of waiting and working: pace, backoff, batches, verdicts."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from postroad.bus import (
    HeldMessage,
    Message,
    Park,
    Retry,
    TransactionFailed,
    TransactionOwned,
    polling,
)
from postroad.bus.batch import Batch, BatchSize, Failure, Sharing
from postroad.bus.handlers import MAX_CONFLICTS, Handler, is_conflict, judge
from postroad.bus.message import unread
from postroad.bus.polling import PollSchedule, maintenance_pause_seconds
from postroad.bus.reconnect import Backoff
from postroad.bus.shared_connection import check_open

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def _message(number: int) -> Message:
    return Message(number, NOW, f"q.{number}@x", None, None, (), {}, {}, "data")


def _batch(prefetch: int = 10) -> Batch:
    return Batch(Handler("q", "c", print, "transaction", 1, prefetch, timedelta(seconds=30)))


@pytest.mark.parametrize(
    ("queues", "messages", "call_seconds", "pause_seconds"),
    [(0, 0, 0.001, 0.5), (1, 0, 0.001, 0.05), (1, 999, 0.01, 0.25), (1, 0, 1.0, 0.5),
     (1, 1000, 1.0, 0.05)],
)  # fmt: skip
def test_maintenance_runs_often_while_queues_move_and_it_is_cheap_or_behind(
    queues: int, messages: int, call_seconds: float, pause_seconds: float
) -> None:
    assert maintenance_pause_seconds(0.5, queues, messages, call_seconds) == pause_seconds


def test_a_queue_that_moved_is_looked_into_at_every_tick_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling, "RECHECK_SECONDS", 10)
    pace = PollSchedule()
    assert pace.due(0.0, {"q": 5}) == ["q"]
    assert pace.due(0.5, {"q": 5}) == ["q"]
    assert pace.due(1.5, {"q": 5}) == []
    assert pace.due(2.0, {"q": 6}) == ["q"]
    assert pace.due(2.9, {"q": 6}) == ["q"]
    assert pace.due(3.1, {"q": 6}) == []


def test_a_cold_queue_is_looked_into_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "WARM_SECONDS", 0)
    pace = PollSchedule()
    assert pace.due(10.0, {"q": None}) == ["q"]
    assert pace.due(10.5, {"q": None}) == []
    assert pace.due(11.0, {"q": None}) == ["q"]


def test_delays_grow_to_their_limit_and_are_spread() -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=5), chance=lambda: 1.0)
    assert [backoff.next_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_seconds() == 1
    assert 0 <= Backoff().next_seconds() < 0.1


def test_a_batch_is_committed_with_the_next_take() -> None:
    batch = _batch()
    assert batch.statement().startswith("begin isolation level read committed; select id,")
    assert 'from mbus."batch_q_by_c"(10); select' in batch.statement()
    batch.took([_message(1)], "7")
    assert "; commit; begin" in batch.statement()
    assert batch.statement(is_last=True).endswith("; commit")
    assert "'7'::xid8" in batch.statement(is_last=True)


def test_a_failure_halves_the_batch_and_the_next_successes_restore_it() -> None:
    batch = _batch(prefetch=100)
    messages = [_message(number) for number in range(10)]
    batch.took(messages, "7")
    failure = Failure(messages[1], ValueError())
    assert batch.failed([failure]) == [failure]
    for amount in (5, 10, 20):
        assert batch.amount == amount
        batch.took(messages[:amount], "8")
        batch.handled(0.001, 1)


def test_a_batch_without_a_message_at_fault_is_halved_until_one_is_left() -> None:
    batch, unknown = _batch(), Failure(None, ValueError())
    for amount in (10, 5, 2):
        batch.took([_message(number) for number in range(amount)], "7")
        assert batch.failed([unknown]) == [unknown]
    assert batch.amount == 1
    batch.took([_message(1)], "7")
    assert batch.failed([unknown]) == [Failure(_message(1), unknown.error)]


def test_quick_handlers_get_more_at_once_and_slow_ones_fewer() -> None:
    size = BatchSize(100)
    assert size.amount == 10
    for amount in (20, 40, 80, 100, 100):
        size.adjust(size.amount, 0.001)
        assert size.amount == amount
    size.adjust(100, 2.0)
    assert size.amount == 5
    size.adjust(5, 30.0)
    assert size.amount == 1
    size.adjust(0, 30.0)
    size.adjust(1, 0.0)
    assert size.amount == 2
    assert BatchSize(3).amount == 3


def test_a_lost_conflict_blames_nobody_until_it_is_enough() -> None:
    batch = _batch()
    conflict = Failure(_message(1), psycopg.errors.DeadlockDetected())
    for _ in range(MAX_CONFLICTS):
        batch.took([_message(1), _message(2)], "7")
        assert batch.failed([conflict]) == []
        assert batch.taken == []
        assert batch.amount == 1
    batch.took([_message(1)], "7")
    assert batch.failed([conflict]) == [conflict]


def test_beside_a_failed_attempt_a_conflict_is_none() -> None:
    batch = _batch()
    batch.took([_message(1), _message(2)], "7")
    conflict = Failure(_message(1), psycopg.errors.DeadlockDetected())
    failure = Failure(_message(2), ValueError())
    assert batch.failed([conflict, failure]) == [failure]


def test_messages_whose_handlers_have_not_returned_are_the_rest() -> None:
    batch = _batch()
    batch.took([_message(number) for number in range(4)], "7")
    batch.done += [_message(2), _message(0)]
    assert [message.id for message in batch.rest()] == [1, 3]


def test_messages_handled_at_the_same_time_fit_together_however_slow_they_are() -> None:
    size = BatchSize(100)
    size.adjust(10, 0.01, width=10)
    assert size.amount == 20
    size.adjust(20, 0.1, width=10)
    assert size.amount == 20
    size.adjust(20, 60.0, width=10)
    assert size.amount == 10


def _sharing(concurrency: int, prefetch: int = 300, connections: int | None = None) -> Sharing:
    ttl = timedelta(seconds=30)
    return Sharing(Handler("q", "c", print, "transaction", concurrency, prefetch, ttl, connections))


def test_many_handlers_share_few_connections_and_few_share_none() -> None:
    assert (_sharing(256).connections, _sharing(256).width) == (4, 86)
    assert (_sharing(10).connections, _sharing(10).width) == (4, 4)
    assert (_sharing(3).connections, _sharing(3).width) == (3, 1)
    assert (_sharing(256, prefetch=1).connections, _sharing(256, prefetch=1).width) == (256, 1)
    assert (_sharing(256, connections=2).connections, _sharing(256, connections=2).width) == (
        2,
        256,
    )
    assert (_sharing(256, connections=1).connections, _sharing(256, connections=1).width) == (
        1,
        256,
    )


def test_a_batch_handler_gets_its_batch_once_and_never_more_than_it_wants() -> None:
    ttl = timedelta(seconds=30)
    handler = Handler("q", "c", print, "transaction", 4, 1_000, ttl, connections=2, batch=100)
    assert (Sharing(handler).connections, Sharing(handler).width) == (2, 1)
    batch = Batch(handler)
    assert batch.amount == 100
    batch.took([_message(number) for number in range(100)], "7")
    batch.handled(0.001, 1)
    assert batch.amount == 100
    batch.took([_message(number) for number in range(100)], "7")
    batch.handled(60.0, 1)
    assert batch.amount == 100


def test_slow_batches_get_a_connection_each_and_quick_ones_share_again() -> None:
    sharing = _sharing(20)
    assert sharing.grow(4, 0.0)
    assert (sharing.connections, sharing.width) == (8, 3)
    # A batch that began before asks for no more.
    assert sharing.grow(4, 0.0)
    assert sharing.connections == 8
    assert sharing.grow(8, 0.0)
    assert sharing.grow(16, 0.0)
    assert (sharing.connections, sharing.width) == (20, 1)
    assert not sharing.grow(20, 0.0)
    assert not sharing.shrink(16, 0.001, 60.0)
    assert not sharing.shrink(20, 0.05, 60.0)
    assert sharing.shrink(20, 0.001, 60.0)
    assert sharing.shrink(10, 0.001, 60.0)
    assert sharing.shrink(5, 0.001, 60.0)
    assert not sharing.shrink(4, 0.001, 60.0)
    assert sharing.connections == 4


def test_connections_are_not_closed_soon_after_a_slow_batch() -> None:
    sharing = _sharing(20)
    assert sharing.grow(4, 100.0)
    assert not sharing.shrink(8, 0.001, 100.5)
    # A batch that began before does not keep them longer.
    assert sharing.grow(4, 100.8)
    assert sharing.shrink(8, 0.001, 101.5)


def test_a_conflict_is_known_through_whatever_wraps_it() -> None:
    wrapper = RuntimeError("wrapped")
    wrapper.__cause__ = psycopg.errors.DeadlockDetected()
    assert is_conflict(wrapper)
    assert is_conflict(psycopg.errors.SerializationFailure())
    assert not is_conflict(psycopg.errors.UniqueViolation())


def test_what_a_handler_raises_decides() -> None:
    retry = judge(Retry("later", after=timedelta(seconds=3)))
    assert (retry.delay, retry.error, retry.dead_letter) == (timedelta(seconds=3), "later", False)
    assert judge(Retry()).delay is None
    parked = judge(Park("no sense"))
    assert (parked.error, parked.dead_letter, parked.is_failure) == ("no sense", True, False)
    failed = judge(ValueError("a\x00b" + "x" * 10_000))
    assert failed.error.startswith("ValueError: a�b")
    assert len(failed.error) == 4_000
    assert failed.is_failure


def test_a_transaction_that_failed_is_not_committed() -> None:
    check_open(TransactionStatus.INTRANS)
    with pytest.raises(TransactionOwned):
        check_open(TransactionStatus.IDLE)
    with pytest.raises(TransactionFailed):
        check_open(TransactionStatus.INERROR)


def test_a_held_message_is_a_leased_one_with_a_flag() -> None:
    held = HeldMessage(1, NOW, "q.1@x", None, None, (), {"h": "1"}, {}, "data", 7, 2, NOW)
    assert (held.iid, held.token, held.attempt, held.attempts) == ("q.1@x", 7, 2, 1)
    assert not held.is_lost
    assert not held.lost.is_set()
    held.lost.set()
    assert held.is_lost
    assert held.lost is held.lost


def test_headers_are_read_when_somebody_looks() -> None:
    message = Message(1, NOW, "q.1@x", None, None, (), '"a"=>"1"', '"b"=>NULL', "x")  # type: ignore[arg-type]
    assert unread("headers")(message) == '"a"=>"1"'
    assert message.headers == {"a": "1", "enqueue_time": "2030-01-01 00:00:00+00"}
    assert unread("headers")(message) is message.headers
    assert message.properties == {"b": None}
    assert pickle.loads(pickle.dumps(message)) == message
    assert replace(message, headers={}).headers == {}
    held = HeldMessage(1, NOW, "q.1@x", None, None, (), '"a"=>"1"', {}, "x", 7, 2, NOW)  # type: ignore[arg-type]
    assert unread("headers")(held) == '"a"=>"1"'
    assert held.headers["a"] == "1"
