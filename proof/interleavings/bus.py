"""Steps of programs that call the bus, and the checker that compares them with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

import psycopg
from psycopg import Connection

from proof.interleavings.explorer import Checker, Statement
from proof.interleavings.model import Queue
from proof.interleavings.session import Answer

__all__ = [
    "HELD_TAKES",
    "Ack",
    "Advance",
    "BusChecker",
    "CreateConsumer",
    "Extend",
    "HoldTakes",
    "Lease",
    "Maintain",
    "Nack",
    "Pause",
    "Post",
    "Redrive",
    "Resume",
    "RetainChecker",
    "ScheduleChecker",
    "Take",
    "TakeNumber",
    "checker_of",
    "prepare_queue",
]

TTL_SECONDS = 600
# The bus's time is the real one plus what this sequence counts, so that a step can move it without
# a transaction.
CLOCK = """
create sequence public.proof_clock minvalue 0 start 0;
select setval('public.proof_clock', 0);
grant select, usage on sequence public.proof_clock to public;
create or replace function mbus.now() returns timestamptz language sql volatile parallel safe as
  'select pg_catalog.clock_timestamp()
     + make_interval(secs => pg_sequence_last_value(''public.proof_clock''))';
"""
ADVANCE = "select setval('public.proof_clock', pg_sequence_last_value('public.proof_clock') + %s)"
LEASE_LOST = "MB015"
# All slots of the queue, with triggers that wait for the lock of HoldTakes.
HELD_TAKES = """
create function public.proof_hold() returns trigger language plpgsql as
  'begin perform pg_advisory_xact_lock_shared(4711); return null; end';
do 'declare v_table text;
begin
  execute ''set local role '' || (
    select p.proowner::regrole from pg_proc p where p.oid = ''mbus.maintain''::regproc);
  perform mbus._create_slot(q, s) from mbus.queue q, generate_series(0, q.slots - 1::bigint) s;
  for v_table in select t.ready_table from mbus.queue q, mbus._tables(q) t loop
    execute format(''create trigger hold after delete on mbus.%I for each row
      execute function public.proof_hold()'', v_table);
  end loop;
end'
"""


def prepare_queue(
    *consumers: str,
    more: tuple[str, ...] = (),
    headers: tuple[str, ...] = (),
) -> Callable[[str], None]:
    """Return what makes queue q with these consumers besides the first one.

    headers: those of messages that are posted and consumed before, so that the queue already has
    the functions for them.
    """

    def prepare(dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(CLOCK)
            connection.execute("select mbus.create_queue('q')")
            for consumer in consumers:
                connection.execute("select mbus.create_consumer('q', %s)", (consumer,))
            for statement in more:
                connection.execute(statement.encode())
            for header in headers:
                connection.execute("select mbus.post_q('l=>warm', %s::hstore)", (header,))
            for consumer in ("default", *consumers):
                drain = f"select from mbus.consumen_q_by_{consumer}(100)"
                connection.execute(drain.encode())

    return prepare


class BusChecker(Queue):
    """One run on queue q: labels are made distinct between runs by the number of the run."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        sessions: int,
        consumers: tuple[str, ...],
        ready: tuple[str, ...],
        is_fresh: bool = False,
    ) -> None:
        super().__init__(sessions, consumers)
        self.number = number
        self.tokens: list[dict[str, str]] = [{} for _ in range(sessions)]
        self.connection = connection
        if is_fresh:
            connection.execute("select mbus.drop_queue('q')")
            connection.execute("select mbus.create_queue('q')")
        # Maintenance has just run, so takes do not do its work.
        self.connection.execute("select mbus.maintain('q')")
        for label in ready:
            iid = self.connection.execute(
                "select mbus.post_q(hstore('l', %s))", (self.name(label),)
            ).fetchone()
            assert iid is not None
            self.post(0, label, iid[0])
            self.committed_by(0)

    def name(self, label: str) -> str:
        return f"{self.number}.{label}"

    def labels(self, names: Iterable[str | None]) -> list[str]:
        """Return the labels of messages; of an earlier run's message the whole name."""
        prefix = f"{self.number}."
        return [(name or "").removeprefix(prefix) for name in names]

    def committed(self, session: int) -> None:
        self.committed_by(session)

    def rolled_back(self, session: int) -> None:
        self.forget(session)

    def finish(self) -> None:
        """Let all leases end and all delays be over, and take what is left."""
        execute = self.connection.execute
        execute(ADVANCE, (7200,))
        execute("select mbus.resume('q') where exists (select from mbus.pause)")
        dead: dict[str, list[str]] = {consumer: [] for consumer in self.consumers}
        for consumer, name in execute(
            "select c.name, d.data_hstore -> 'l' from mbus.dmq d"
            " join mbus.consumer c on c.id = d.consumer_id"
        ).fetchall():
            dead[consumer] += self.labels([name])
        if any(dead.values()):
            execute("select mbus.purge_dead(array(select id from mbus.dead where queue = 'q'))")
        left: dict[str, list[str]] = {consumer: [] for consumer in self.consumers}
        is_empty = False
        while not is_empty:
            # Takes release what is due themselves, and so does maintenance.
            execute("select mbus.maintain('q')")
            is_empty = True
            for consumer in self.consumers:
                take = f"select data -> 'l' from mbus.consumen_q_by_{consumer}(100)"
                found = [name for (name,) in execute(take.encode()).fetchall()]
                left[consumer] += self.labels(found)
                is_empty = is_empty and not found
        for consumer in self.consumers:
            self.drained(consumer, left[consumer], dead[consumer])


def checker_of(
    sessions: int,
    consumers: tuple[str, ...] = ("default",),
    ready: tuple[str, ...] = (),
    *,
    is_fresh: bool = False,
) -> Callable[[Connection, int], Checker]:
    """Return what makes the checker of a run.

    `ready` are labels of messages that are there; `is_fresh`: each run has a new queue.
    """

    def make(connection: Connection, number: int) -> Checker:
        return BusChecker(connection, number, sessions, consumers, ready, is_fresh)

    return make


class _Step:
    """A step that expects no error."""

    def __str__(self) -> str:
        return repr(self)

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        bus = cast("BusChecker", checker)
        if answer.sqlstate is not None:
            return False
        bus.use(session)
        self.check(bus, session, answer, was_blocked)
        return True

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Post(_Step):
    label: str
    group: str | None = None
    key: str | None = None
    delay_seconds: int = 0
    after: tuple[str, ...] = ()
    priority: str | None = None
    # The first message of its kind: it changes the queue's functions.
    is_first: bool = False

    def __repr__(self) -> str:
        return f"post {self.label}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        bus = cast("BusChecker", checker)
        headers = []
        if self.group:
            headers.append(f"group=>{self.group}")
        if self.priority:
            headers.append(f"priority=>{self.priority}")
        if self.key:
            headers.append(f'dedup_key=>"{bus.name(self.key)}"')
        # A predecessor whose post was rolled back, or has not come yet, is left out.
        iids = [bus.iids[label] for label in self.after if label in bus.iids]
        if iids:
            headers.append(f'consume_after=>"{{{",".join(iids)}}}"')
            headers.append("consume_after_lost=>release")
        delay = f"mbus.now() + interval '{self.delay_seconds} s'" if self.delay_seconds else "null"
        text = f"select mbus.post_q(hstore('l', $1), $2::hstore, delayed_until => {delay})"
        return text, (bus.name(self.label), ", ".join(headers) or None)

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        iid = answer.rows[0][0] or ""
        if self.key is not None:
            first = [label for label, known in bus.iids.items() if known == iid]
            if first:
                if all(bus.view(session, (c, first[0])) is None for c in bus.consumers):
                    bus.violations.append(
                        f"{self.label} was dropped for {first[0]}, which is not there"
                    )
                return
            rivals = [
                label
                for label in bus.iids
                if label.startswith("key") and (bus.consumers[0], label) in bus.copies
            ]
            if rivals:
                bus.violations.append(f"{self.label} was posted beside {rivals} with the same key")
        bus.open[session].is_reshaping |= self.is_first
        after = frozenset(label for label in self.after if label in bus.iids)
        state = "delayed" if self.delay_seconds else "blocked" if after else "ready"
        bus.post(
            session,
            self.label,
            iid,
            group=self.group,
            state=state,  # type: ignore[arg-type]
            at=bus.now + self.delay_seconds,
            after=after,
        )
        # They are locked until this transaction ends, so that their consumers see this message.
        for label in after:
            for consumer in bus.consumers:
                if bus.view(session, (consumer, label)) is not None:
                    bus.open[session].locks.add((consumer, label))


@dataclass(frozen=True, repr=False)
class Take(_Step):
    consumer: str = "default"
    amount: int = 10

    def __repr__(self) -> str:
        return f"take {self.amount} as {self.consumer}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        return (
            f"select data -> 'l' from mbus.consumen_q_by_{self.consumer}({self.amount})",
            (),
        )

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        labels = bus.labels([row[0] for row in answer.rows])
        bus.take(session, self.consumer, self.amount, labels, was_blocked)


@dataclass(frozen=True, repr=False)
class TakeNumber(_Step):
    """Takes a message by its iid, in any state; waits for a transaction that holds it."""

    label: str
    consumer: str = "default"

    def __repr__(self) -> str:
        return f"take {self.label} as {self.consumer}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        bus = cast("BusChecker", checker)
        if self.label not in bus.iids:
            return None
        return (
            f"select data -> 'l' from mbus.take_from_q_by_{self.consumer}($1)",
            (bus.iids[self.label],),
        )

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        key = self.consumer, self.label
        copy = bus.view(session, key)
        is_there = copy is not None and copy.state != "gone"
        # What another transaction did meanwhile may not be known here yet.
        is_known = not was_blocked and not bus.is_in_doubt(session, key)
        if answer.rows and not is_there:
            bus.violations.append(f"{self} returned a message that is gone")
        elif not answer.rows and is_there and is_known:
            bus.violations.append(f"{self} found nothing")
        if answer.rows and is_there:
            bus.change(session, key, state="gone", token=None)
            bus.open[session].takes.append(key)


@dataclass(frozen=True, repr=False)
class Lease(_Step):
    amount: int = 10
    ttl_seconds: int = TTL_SECONDS

    def __repr__(self) -> str:
        return f"lease {self.amount}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        return (
            "select data -> 'l', token, iid from mbus.lease_q_by_default("
            f"{self.amount}, interval '{self.ttl_seconds} s')",
            (),
        )

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        labels = bus.labels([row[0] for row in answer.rows])
        bus.take(session, "default", self.amount, labels, was_blocked)
        for label, row in zip(labels, answer.rows, strict=True):
            key = "default", label
            if bus.view(session, key) is None:
                continue
            token = row[1] or ""
            bus.tokens[session][label] = token
            bus.open[session].takes.remove(key)
            bus.change(session, key, state="leased", token=token, at=bus.now + self.ttl_seconds)


@dataclass(frozen=True, repr=False)
class _Answering(_Step):
    """Answers the lease that this session got last, of the named message or the first."""

    label: str | None = None

    def chosen(self, bus: BusChecker, session: int) -> str | None:
        if self.label is not None:
            return self.label if self.label in bus.tokens[session] else None
        return next(iter(bus.tokens[session]), None)

    def call(self) -> str:
        raise NotImplementedError

    def statement(self, checker: Checker, session: int) -> Statement | None:
        bus = cast("BusChecker", checker)
        label = self.chosen(bus, session)
        if label is None:
            return None
        return self.call(), (bus.iids[label], bus.tokens[session][label])

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        bus = cast("BusChecker", checker)
        label = self.chosen(bus, session)
        assert label is not None
        key = "default", label
        copy = bus.view(session, key)
        is_held = (
            copy is not None
            and copy.state == "leased"
            and copy.token == bus.tokens[session][label]
            and copy.at > bus.now
        )
        is_known = not was_blocked and not bus.is_in_doubt(session, key)
        if answer.sqlstate == LEASE_LOST:
            if is_held and is_known:
                bus.violations.append(f"{self} was refused, though the lease has not ended")
            return True
        if answer.sqlstate is not None:
            return False
        if not is_held:
            bus.violations.append(f"{self} of {label} was accepted after the lease had ended")
        else:
            self.answered(bus, session, label, answer)
        return True

    def answered(self, bus: BusChecker, session: int, label: str, answer: Answer) -> None:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Ack(_Answering):
    def __repr__(self) -> str:
        return "ack"

    def call(self) -> str:
        return "select mbus.ack($1, $2::bigint)"

    def answered(self, bus: BusChecker, session: int, label: str, answer: Answer) -> None:
        bus.change(session, ("default", label), state="gone", token=None)
        bus.open[session].takes.append(("default", label))


@dataclass(frozen=True, repr=False)
class Nack(_Answering):
    park: bool = False

    def __repr__(self) -> str:
        return "park" if self.park else "nack"

    def call(self) -> str:
        return f"select mbus.nack($1, $2::bigint, interval '0', 'failed', {self.park})"

    def answered(self, bus: BusChecker, session: int, label: str, answer: Answer) -> None:
        copy = bus.view(session, ("default", label))
        assert copy is not None
        # A message of a group waits outside the ring, and is taken from there.
        state = "dead" if self.park else "ready" if copy.group is None else "delayed"
        bus.change(session, ("default", label), state=state, token=None, at=bus.now)


@dataclass(frozen=True, repr=False)
class Extend(_Answering):
    ttl_seconds: int = 2 * TTL_SECONDS

    def __repr__(self) -> str:
        return "extend"

    def call(self) -> str:
        return f"select mbus.extend($1, $2::bigint, interval '{self.ttl_seconds} s')"

    def answered(self, bus: BusChecker, session: int, label: str, answer: Answer) -> None:
        bus.change(session, ("default", label), at=bus.now + self.ttl_seconds)


@dataclass(frozen=True, repr=False)
class _Call(_Step):
    """A call that does not change what consumers get, unless a subclass says so."""

    text: str = ""

    def __repr__(self) -> str:
        return self.text

    def statement(self, checker: Checker, session: int) -> Statement | None:
        return self.text, ()

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        return


@dataclass(frozen=True, repr=False)
class Maintain(_Call):
    text: str = "select mbus.maintain()"


@dataclass(frozen=True, repr=False)
class HoldTakes(_Call):
    """Lets takes wait within the function, once they have removed rows, until the transaction ends.

    The queue is prepared with HELD_TAKES.
    """

    text: str = "select pg_advisory_xact_lock(4711)"


@dataclass(frozen=True, repr=False)
class CreateConsumer(_Call):
    """Adds a consumer: the queue is stored in another way afterwards."""

    text: str = "select mbus.create_consumer('q', 'late')"

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        bus.open[session].is_reshaping = True


@dataclass(frozen=True, repr=False)
class Advance(_Call):
    """Moves the bus's time. Not part of a transaction, though it is called in one."""

    seconds: int = 3 * TTL_SECONDS

    def __repr__(self) -> str:
        return "clock"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        return ADVANCE % self.seconds, ()

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        bus.now += self.seconds


@dataclass(frozen=True, repr=False)
class Pause(_Call):
    text: str = "select mbus.pause('q')"

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        bus.open[session].pause = True


@dataclass(frozen=True, repr=False)
class Resume(_Call):
    text: str = "select mbus.resume('q')"

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        bus.open[session].pause = False


@dataclass(frozen=True, repr=False)
class Redrive(_Call):
    text: str = "select mbus.redrive('q')"

    def check(self, bus: BusChecker, session: int, answer: Answer, was_blocked: bool) -> None:
        dead = [
            key
            for key in bus.keys(session)
            if (copy := bus.view(session, key)) is not None
            and copy.state == "dead"
            and not bus.is_in_doubt(session, key)
        ]
        if not was_blocked and int(answer.rows[0][0] or 0) != len(dead):
            bus.violations.append(f"redrive returned {answer.rows[0][0]} of {len(dead)} messages")
        for key in dead:
            bus.change(session, key, state="ready")


class RetainChecker(BusChecker):
    """A queue that retains: its history has each committed message once, and no other."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number, sessions=2, consumers=("default",), ready=("r",))

    def finish(self) -> None:
        """Take what is left, let maintenance retain the slots, and compare the history."""
        super().finish()
        execute = self.connection.execute
        for _ in range(4):
            execute("select mbus.maintain('q')")
        found = self.labels(
            name
            for (name,) in execute(
                "select data::hstore -> 'l' from mbus.history('q', amt => 100000)"
            ).fetchall()
            if (name or "").startswith(f"{self.number}.")
        )
        committed = sorted(label for _, label in self.copies)
        if sorted(found) != committed:
            self.violations.append(f"the history has {sorted(found)}, not {committed}")


class ScheduleChecker(BusChecker):
    """A schedule of each minute, some minutes late: each planned run is posted once."""

    MINUTES = 3

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number, sessions=3, consumers=("default",), ready=())
        connection.execute(
            "select mbus.schedule('s', '* * * * *', 'q', ''::hstore, missed => 'all')"
        )
        row = connection.execute("select next_at from mbus.schedule").fetchone()
        assert row is not None
        self._first: datetime = row[0]
        connection.execute(ADVANCE, (60 * self.MINUTES,))

    def finish(self) -> None:
        """Let maintenance post what is left, and compare the planned times."""
        execute = self.connection.execute
        execute("select mbus.maintain()")
        row = execute("select next_at from mbus.schedule").fetchone()
        assert row is not None
        planned = [
            datetime.fromisoformat(moment)
            for (moment,) in execute(
                "select headers -> 'planned_at' from mbus.consumen_q_by_default(100)"
            ).fetchall()
        ]
        expected = []
        while self._first < row[0]:
            expected.append(self._first)
            self._first += timedelta(minutes=1)
        if sorted(planned) != expected:
            self.violations.append(f"posted {planned}, planned {expected}")
        execute("select mbus.unschedule('s')")
