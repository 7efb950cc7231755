"""Any sequence of calls over two connections agrees with a small model."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import Connection

from postroad.testing import DatabaseClock
from tests.sql.calls import ack, lease, maintain, nack, one, post, status, take
from tests.sql.model import CLASSES, Copy, Model

WAIT = 60.0
LEASE = "40 seconds"
holders = st.integers(0, 1)
amounts = st.sampled_from([1, 100])
consumers = st.sampled_from(["default", "second"])


class Queue(RuleBasedStateMachine):
    """Two sessions with open transactions, one keeper, one clock."""

    dsn = ""

    @initialize()
    def create(self) -> None:
        self.model = Model()
        self.clock = DatabaseClock(self.dsn)
        self.clock.reset()
        # On a busy machine a sequence may take longer than a lease; the model counts no such time.
        self.clock.stop()
        # Whoever waited would wait for ever: all are in one thread. Long, because the sessions of
        # the sequence before may still be about to end.
        patience = "-c lock_timeout=30s"
        self.sessions = [psycopg.connect(self.dsn, options=patience) for _ in range(2)]
        self.keeper = psycopg.connect(self.dsn, autocommit=True, options=patience)
        self.keeper.execute("select mbus.drop_queue(queue) from mbus.queues")
        self.keeper.execute("select mbus.create_queue('q', 2)")
        self.keeper.execute(
            "select mbus.alter_consumer('q', 'default', 1000, '30 seconds', '30 seconds')"
        )
        # Every shape at once: a transaction that is open while the queue changes its shape may go
        # on with the functions of before.
        for header in ("priority=>high", "priority=>low", "group=>a"):
            post(self.keeper, 0, header)
        while take(self.keeper):
            pass
        self.leases: list[tuple[str, Copy, int]] = []

    def teardown(self) -> None:
        if not hasattr(self, "leases"):
            return
        try:
            self.check_all_is_there()
        finally:
            for connection in (*self.sessions, self.keeper):
                connection.close()

    def check_all_is_there(self) -> None:
        for holder in (0, 1):
            self.end(holder, False)
        self.pass_time()
        for consumer in self.model.copies:
            got = []
            while found := self.receive(self.keeper, consumer, 100):
                got += found
            assert sorted(got) == sorted(self.model.left(consumer)), consumer
            counts = status(self.keeper, "array[ready, delayed, leased, dmq]", consumer=consumer)
            assert counts == [0, 0, 0, 0], consumer

    def receive(self, connection: Connection, consumer: str, amount: int) -> list[int]:
        return [int(number) for number in take(connection, amount, f"q_by_{consumer}")]

    def end(self, holder: int, is_committed: bool) -> None:
        session = self.sessions[holder]
        session.commit() if is_committed else session.rollback()
        self.model.end(holder, is_committed)

    @rule(priority=st.sampled_from(CLASSES), delay=st.sampled_from([0.0, 0.0, WAIT / 2]))
    def post_one(self, priority: str, delay: float) -> None:
        until = delay and self.clock.now() + timedelta(seconds=delay)
        number = self.model.posted + 1
        iid = post(self.keeper, number, f"priority=>{priority}", delayed_until=until or None)
        self.model.post(iid, priority, None, delay)

    @rule(group=st.sampled_from("ab"))
    def post_to_group(self, group: str) -> None:
        iid = post(self.keeper, self.model.posted + 1, f"group=>{group}")
        self.model.post(iid, "normal", group, 0)

    @rule(count=st.integers(1, 5))
    def post_many(self, count: int) -> None:
        first = self.model.posted + 1
        iids = one(
            self.keeper,
            "select mbus.postn_q(array(select hstore('n', n::text)"
            " from generate_series(%s::integer, %s::integer) n))",
            first,
            first + count - 1,
        )
        for iid in iids:
            self.model.post(iid, "normal", None, 0)

    @precondition(lambda self: "second" not in self.model.copies)
    @rule()
    def add_consumer(self) -> None:
        # Creating it waits for open transactions of others.
        for holder in (0, 1):
            self.end(holder, False)
        self.keeper.execute("select mbus.create_consumer('q', 'second')")
        self.keeper.execute(
            "select mbus.alter_consumer('q', 'second', 1000, '30 seconds', '30 seconds')"
        )
        self.model.copies["second"] = {}

    @rule(holder=holders, consumer=consumers, amount=amounts)
    def consume(self, holder: int, consumer: str, amount: int) -> None:
        if consumer not in self.model.copies:
            return
        eligible = self.model.eligible(consumer, holder)
        got = self.receive(self.sessions[holder], consumer, amount)
        self.check_delivery(consumer, got, eligible, amount)
        self.model.take(consumer, got, holder)
        if len(got) < amount and any(
            copy.state == "leased" and copy.group for copy in self.model.copies[consumer].values()
        ):
            # It has locked the group of the lease, whose next message nobody gets meanwhile.
            self.end(holder, True)

    def check_delivery(
        self, consumer: str, got: list[int], eligible: set[int], amount: int
    ) -> None:
        assert len(set(got)) == len(got)
        assert set(got) <= eligible
        assert len(got) == min(amount, len(eligible)), eligible - set(got)
        mine = self.model.copies[consumer]
        for priority in CLASSES:
            fresh = [n for n in got if mine[n].is_fresh and mine[n].priority == priority]
            assert fresh == sorted(fresh)
        ranks = [CLASSES.index(mine[n].priority) for n in got if not mine[n].token]
        assert ranks == sorted(ranks)

    @rule(holder=holders, is_committed=st.booleans())
    def end_transaction(self, holder: int, is_committed: bool) -> None:
        self.end(holder, is_committed)

    @rule(consumer=consumers, amount=amounts)
    def lease_some(self, consumer: str, amount: int) -> None:
        if consumer not in self.model.copies:
            return
        eligible = self.model.eligible(consumer)
        found = lease(self.keeper, amount, f"q_by_{consumer}", LEASE)
        self.check_delivery(consumer, [int(n) for n, _, _, _ in found], eligible, amount)
        for number, iid, token, _ in found:
            copy = self.model.copies[consumer][int(number)]
            assert copy.iid == iid
            copy.state, copy.token, copy.is_fresh = "leased", token, False
            copy.due = self.model.now + 40
            self.leases.append((consumer, copy, token))

    @precondition(lambda self: self.leases)
    @rule(pick=st.randoms(use_true_random=False), answer=st.sampled_from(["ack", "nack", "delay"]))
    def answer(self, pick: object, answer: str) -> None:
        _, copy, token = self.leases.pop(pick.randrange(len(self.leases)))  # type: ignore[attr-defined]
        is_held = copy.state == "leased" and copy.token == token
        if not is_held:
            with pytest.raises(psycopg.Error) as caught:
                ack(self.keeper, copy.iid, token)
            assert caught.value.sqlstate == "MB015"
        elif answer == "ack":
            ack(self.keeper, copy.iid, token)
            copy.state = "gone"
        elif answer == "nack":
            assert nack(self.keeper, copy.iid, token, delay="0") == "ready"
            copy.state, copy.due = ("delayed", self.model.now) if copy.group else ("ready", 0)
        else:
            assert nack(self.keeper, copy.iid, token) == "delayed"
            copy.state, copy.due = "delayed", self.model.now + 30

    @rule()
    def pass_time(self) -> None:
        # An open transaction goes on with the functions it began with, the old clock among them.
        for holder in range(len(self.sessions)):
            self.end(holder, is_committed=False)
        self.clock.advance(timedelta(seconds=WAIT))
        self.model.now += WAIT
        maintain(self.keeper)
        for mine in self.model.copies.values():
            for copy in mine.values():
                if copy.due > self.model.now:
                    continue
                if copy.state == "leased":
                    copy.state = "delayed" if copy.group else "ready"
                elif copy.state == "delayed" and not (copy.group and copy.token):
                    copy.state = "ready"

    @rule()
    def keep(self) -> None:
        maintain(self.keeper)

    @rule(pick=st.randoms(use_true_random=False))
    def take_by_iid(self, pick: object) -> None:
        # Take waits for whoever holds the message; here nobody may.
        candidates = [
            copy
            for copy in self.model.copies["default"].values()
            if all(
                mine.get(copy.number, copy).state != "held" for mine in self.model.copies.values()
            )
        ]
        if not candidates:
            return
        number = pick.choice(candidates).number  # type: ignore[attr-defined]
        copies = [mine[number] for mine in self.model.copies.values() if number in mine]
        got = take_one(self.keeper, copies[0].iid)
        assert got == ([str(number)] if any(c.state != "gone" for c in copies) else [])
        for copy in copies:
            copy.state = "gone"


def take_one(connection: Connection, iid: str) -> list[str]:
    return [row[0] for row in connection.execute("select data->'n' from mbus.take(%s)", (iid,))]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_sequence_of_calls_agrees_with_the_model(database: str) -> None:
    machine = type("QueueOfThisRun", (Queue,), {"dsn": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
