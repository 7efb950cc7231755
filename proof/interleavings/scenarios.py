"""The scenarios: which programs run against each other, on which queue."""

from __future__ import annotations

from proof.interleavings.bus import (
    HELD_TAKES,
    Ack,
    Advance,
    CreateConsumer,
    Extend,
    HoldTakes,
    Lease,
    Maintain,
    Nack,
    Pause,
    Post,
    Redrive,
    Resume,
    RetainChecker,
    ScheduleChecker,
    Take,
    TakeNumber,
    checker_of,
    prepare_queue,
)
from proof.interleavings.explorer import DEADLOCK, Scenario

__all__ = ["BUS_SCENARIOS"]

# Each run of maintenance seals the current slot.
SMALL_SLOTS = (
    "create or replace function mbus._slot_bytes() returns bigint"
    " language sql immutable parallel safe return 1"
)
# Longer than the lock time limit of mbus._free_segment.
PATIENCE_SECONDS = 0.03

BUS_SCENARIOS = (
    Scenario(
        "post_take",
        "two posts against a take of each consumer",
        prepare_queue("other"),
        (((Post("a"), Post("b")), (Take("default"),)), ((Post("c"), Take("other")),)),
        checker_of(2, ("default", "other")),
    ),
    Scenario(
        "rotation",
        "a post and a take while maintenance seals, passes and truncates slots",
        prepare_queue(more=(SMALL_SLOTS,)),
        (
            ((Post("a"),), (Post("b"), Take())),
            ((Maintain("select mbus.maintain('q')"),),) * 3,
        ),
        checker_of(2, ready=("r",)),
    ),
    Scenario(
        "rotation_fanout",
        "the same for a queue with two consumers",
        prepare_queue("other", more=(SMALL_SLOTS,)),
        (
            ((Post("a"), Take("default")), (Take("other"),)),
            ((Maintain("select mbus.maintain('q')"),),) * 3,
        ),
        checker_of(2, ("default", "other"), ready=("r",)),
    ),
    Scenario(
        "rotation_three",
        "a post, a take and maintenance in three sessions",
        prepare_queue(more=(SMALL_SLOTS,)),
        (
            ((Post("a"), Post("b")),),
            ((Take(amount=1),), (Take(),)),
            ((Maintain("select mbus.maintain('q')"),),) * 2,
        ),
        checker_of(3, ready=("r",)),
        max_deviations=1,
    ),
    Scenario(
        "rotation_lease",
        "a lease and its answer while maintenance seals slots and moves leased messages",
        prepare_queue(more=(SMALL_SLOTS,)),
        (
            ((Lease(amount=1),), (Ack(),)),
            ((Maintain("select mbus.maintain('q')"), Post("a")),)
            + ((Maintain("select mbus.maintain('q')"),),) * 2,
        ),
        checker_of(2, ready=("r", "s")),
    ),
    Scenario(
        "retention",
        "a post and a take while maintenance turns slots into retained segments",
        prepare_queue(more=(SMALL_SLOTS, "select mbus.alter_queue('q', retain => '10 days')")),
        (
            ((Post("a"),), (Post("b"), Take())),
            ((Maintain("select mbus.maintain('q')"),),) * 3,
        ),
        RetainChecker,
    ),
    Scenario(
        "two_maintain",
        "two sessions that maintain while a third posts and takes",
        prepare_queue(more=(SMALL_SLOTS,)),
        (
            ((Maintain(),), (Maintain(),)),
            ((Maintain(),), (Maintain(),)),
            ((Post("a"), Take(amount=1)),),
        ),
        checker_of(3, ready=("r",)),
        patience_seconds=PATIENCE_SECONDS,
        max_deviations=1,
    ),
    Scenario(
        "groups",
        "two consumers of a group, and a post to it",
        prepare_queue(headers=("group=>g",)),
        (
            ((Post("a", group="g"), Post("b", group="g")), (Take(amount=1),)),
            ((Take(amount=1), Take(amount=1)),),
        ),
        checker_of(2),
    ),
    Scenario(
        "groups_rotation",
        "posts to a group that become visible during a take, while slots are sealed",
        prepare_queue(more=(SMALL_SLOTS, HELD_TAKES), headers=("group=>g",)),
        (
            (
                (Post("a", group="h"),),
                (Maintain("select mbus.maintain('q')"),),
                (Take(),),
                (Take(),),
            ),
            ((HoldTakes(), Post("b", group="g"), Post("c", group="g")),),
        ),
        checker_of(2),
        max_deviations=1,
    ),
    Scenario(
        "groups_lease",
        "leases of a group: nack, end and take-over keep the order",
        prepare_queue(headers=("group=>g",)),
        (
            ((Post("a", group="g"), Post("b", group="g")), (Lease(amount=1),), (Nack(),)),
            ((Lease(amount=1),), (Ack(),), (Take(amount=1),)),
        ),
        checker_of(2),
        max_deviations=1,
    ),
    Scenario(
        "first_group",
        "the first message of a group changes the queue's functions meanwhile",
        prepare_queue(),
        (
            ((Post("a"),), (Post("b", group="g", is_first=True), Post("c", group="g"))),
            ((Take(amount=1), Take(amount=1)),),
        ),
        checker_of(2, is_fresh=True),
        max_deviations=1,
    ),
    Scenario(
        "first_priority",
        "the first message of another priority adds tables to the queue meanwhile",
        prepare_queue(),
        (
            ((Post("a", priority="high", is_first=True), Post("b")),),
            ((Post("c", priority="high", is_first=True), Take()),),
        ),
        checker_of(2, is_fresh=True),
        max_deviations=1,
    ),
    Scenario(
        "second_consumer",
        "the second consumer changes how the queue is stored, against a post and a take",
        prepare_queue(),
        (
            ((CreateConsumer(),),),
            ((Post("a"), Take(amount=1)), (Take(),)),
        ),
        checker_of(2, ready=("r",), is_fresh=True),
        max_deviations=1,
        # Tables that were replaced while a statement waited for them, and a consumer that could not
        # be created because of a deadlock: the client calls again.
        retryable=frozenset({DEADLOCK, "42P01", "XX000", "MB017"}),
    ),
    Scenario(
        "schedule",
        "two sessions that post the due runs of a schedule",
        prepare_queue(),
        (
            ((Maintain(),),),
            ((Maintain(),), (Maintain(),)),
            ((Maintain(),),),
        ),
        ScheduleChecker,
        patience_seconds=PATIENCE_SECONDS,
    ),
    Scenario(
        "consume_after",
        "a message that waits for another one, against the take of that one",
        prepare_queue(),
        (
            ((Post("a"),), (Post("b", after=("a",)),)),
            ((Take(),), (Take(),)),
            ((Maintain(),),),
        ),
        checker_of(3),
        patience_seconds=PATIENCE_SECONDS,
        max_deviations=1,
    ),
    Scenario(
        "lease_end",
        "the end of a lease against its ack",
        prepare_queue(),
        (
            ((Lease(),), (Ack(),)),
            ((Advance(),), (Maintain("select mbus.maintain('q')"), Lease()), (Ack(),)),
        ),
        checker_of(2, ready=("r",)),
    ),
    Scenario(
        "extend",
        "an extension against the take-over",
        prepare_queue(),
        (
            ((Lease(),), (Extend(), Ack())),
            ((Advance(),), (Lease(),), (Ack(),)),
        ),
        checker_of(2, ready=("r",)),
    ),
    Scenario(
        "dedup",
        "posts with one key",
        prepare_queue(),
        (
            ((Post("key1", key="k"), Post("a")),),
            ((Post("key2", key="k"), Take()),),
            ((Post("key3", key="k"),),),
        ),
        checker_of(3),
    ),
    Scenario(
        "pause",
        "pause and resume against takes and posts",
        prepare_queue(),
        (
            ((Pause(),), (Resume(),)),
            ((Take(amount=1), Take(amount=1)), (Post("a"), Take())),
        ),
        checker_of(2, ready=("r", "s")),
    ),
    Scenario(
        "redrive",
        "a dead message: redrive against a take by its iid",
        prepare_queue(),
        (
            ((Lease(),), (Nack(park=True),), (Redrive(), Take())),
            ((TakeNumber("r"),), (Redrive(), Take())),
        ),
        checker_of(2, ready=("r",)),
    ),
    Scenario(
        "delayed",
        "a delayed message that comes due, against its cancellation",
        prepare_queue(),
        (
            ((Post("a", delay_seconds=900),), (TakeNumber("a"),)),
            ((Advance(),), (Maintain("select mbus.maintain('q')"), Take())),
        ),
        checker_of(2),
    ),
    Scenario(
        "take_by_iid",
        "takes of one message by its iid and by order, by three sessions",
        prepare_queue("other"),
        (
            ((TakeNumber("r"),), (Take("other"),)),
            ((Take(amount=1),), (TakeNumber("r", "other"),)),
            ((TakeNumber("r"),),),
        ),
        checker_of(3, ("default", "other"), ready=("r",)),
        max_deviations=1,
    ),
)
