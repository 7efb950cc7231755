"""The state machine of leases, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from postroad.lease import Keeper, lost_tokens


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _keeper(clock: FakeClock, ack_batch: int = 3) -> Keeper[int, str]:
    ttl, delay = timedelta(seconds=30), timedelta(seconds=1)
    return Keeper(ttl, ack_delay=delay, ack_batch=ack_batch, clock=clock)


def test_held_leases_are_extended_three_times_per_ttl(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    assert keeper.to_extend() == {}
    assert keeper.rest_seconds() == 10
    clock.now += 10
    assert keeper.to_extend() == {1: "a", 2: "b"}
    assert keeper.to_extend() == {}
    assert keeper.extended([1, 2], clock.now, lost=[]) == []
    assert keeper.seconds_to_deadline() == 30


def test_a_deadline_counts_from_before_the_lease_was_asked_for(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    asked_at = clock.now
    clock.now += 20
    keeper.claim([(1, "a")], asked_at)
    assert keeper.seconds_to_deadline() == 10


def test_an_extension_counts_from_before_its_call(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a")], clock.now)
    clock.now += 10
    asked_at = clock.now
    clock.now += 15
    keeper.extended([1], asked_at, lost=[])
    assert keeper.seconds_to_deadline() == 15


def test_a_lease_that_was_not_extended_is_lost_at_its_deadline(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a")], clock.now)
    clock.now += 29.9
    assert keeper.expire() == []
    clock.now += 0.1
    assert not keeper.holds(1)
    assert keeper.expire() == ["a"]
    assert keeper.expire() == []
    assert keeper.seconds_to_deadline() is None
    assert not keeper.holds(1)


def test_a_lost_lease_is_neither_acked_nor_released(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    assert keeper.extended([1, 2], clock.now, lost=[1]) == ["a"]
    assert not keeper.finish(1)
    assert keeper.release(1) is None
    assert keeper.release(2) == "b"
    assert not keeper.has_finished


def test_a_late_answer_does_not_revive_a_lease_that_has_expired(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a")], clock.now)
    clock.now += 31
    assert keeper.expire() == ["a"]
    keeper.extended([1], clock.now - 20, lost=[])
    assert not keeper.holds(1)


def test_finished_leases_are_acked_together_after_the_delay(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    assert keeper.finish(1)
    assert keeper.to_ack() == {}
    assert keeper.rest_seconds() == 1
    clock.now += 0.5
    assert not keeper.finish(2)
    clock.now += 0.5
    assert keeper.to_ack() == {1: "a", 2: "b"}
    keeper.acked([1, 2])
    assert not keeper.has_finished


def test_a_full_batch_is_acked_without_delay(clock: FakeClock) -> None:
    keeper = _keeper(clock, ack_batch=2)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    keeper.finish(1)
    assert keeper.finish(2)
    assert keeper.rest_seconds() == 0
    assert keeper.to_ack() == {1: "a", 2: "b"}


def test_a_failed_ack_is_repeated_after_its_backoff(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    keeper.finish(1)
    clock.now += 1
    keeper.ack_failed(keeper.to_ack(), retry_seconds=4)
    keeper.finish(2)
    clock.now += 3
    assert keeper.to_ack() == {}
    clock.now += 1
    assert keeper.to_ack() == {1: "a", 2: "b"}


def test_a_finished_lease_is_extended_until_its_ack_has_arrived(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    keeper.finish(1)
    assert keeper.to_ack(is_due=True) == {1: "a"}
    keeper.finish(2)
    clock.now += 10
    assert keeper.to_extend() == {1: "a", 2: "b"}
    keeper.acked([1])
    clock.now += 10
    assert keeper.to_extend() == {2: "b"}


def test_the_deadline_of_a_finished_lease_is_left_to_its_ack(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a")], clock.now)
    keeper.finish(1)
    clock.now += 100
    assert keeper.expire() == []
    assert keeper.to_ack() == {1: "a"}


def test_flushing_acks_without_delay(clock: FakeClock) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a"), (2, "b")], clock.now)
    keeper.finish(1)
    keeper.flush()
    assert keeper.to_ack() == {1: "a"}
    keeper.finish(2)
    assert keeper.to_ack() == {2: "b"}


def test_of_two_leases_of_one_message_the_older_is_lost() -> None:
    held = [("q.1@x", 9), ("q.1@x", 4), ("q.2@x", 5)]
    assert lost_tokens(held, ["q.1@x"]) == {4}
    assert lost_tokens(held, ["q.1@x", "q.2@x", "q.1@x"]) == {4, 5, 9}
    assert lost_tokens(held, ["q.7@x"]) == set()


class CountingLock:
    def __init__(self) -> None:
        self.entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda keeper: keeper.claim([(2, "b")], 100.0),
        lambda keeper: keeper.keys(),
        lambda keeper: keeper.finish(1),
        lambda keeper: keeper.release(1),
        lambda keeper: keeper.flush(),
        lambda keeper: keeper.to_extend(),
        lambda keeper: keeper.extended([1], 100.0, lost=[]),
        lambda keeper: keeper.to_ack(),
        lambda keeper: keeper.acked([1]),
        lambda keeper: keeper.ack_failed([1]),
        lambda keeper: keeper.seconds_to_deadline(),
        lambda keeper: keeper.expire(),
    ],
    ids=lambda call: "_".join(call.__code__.co_names),
)
def test_threads_take_turns(clock: FakeClock, call: Callable[[Keeper[int, str]], object]) -> None:
    keeper = _keeper(clock)
    keeper.claim([(1, "a")], clock.now)
    lock = CountingLock()
    keeper._lock = lock
    call(keeper)
    assert lock.entered == 1
