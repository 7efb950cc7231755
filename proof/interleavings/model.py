"""What a queue may do, in a few lines: the state of each consumer's copy of each message.

Changes of an open transaction are kept beside the committed state and become part of it, or are
forgotten, when the transaction ends. The promises that are checked:

- a take returns every message that is ready, was committed before, and that no open transaction
  holds, and nothing else;
- an answer to a lease counts if the lease has not ended, and only then;
- what was committed is consumed exactly once by each consumer, and what was rolled back never;
- messages of a group are consumed in the order in which they were posted, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["Copy", "Key", "Queue"]

State = Literal["ready", "leased", "delayed", "dead", "blocked", "gone"]
# Consumer and label of the message.
Key = tuple[str, str]


@dataclass(frozen=True)
class Copy:
    """One consumer's copy of a message."""

    state: State
    group: str | None = None
    token: str | None = None
    # The model's time at which a lease ends or a delay is over.
    at: float = 0.0
    after: frozenset[str] = frozenset()
    place: int = 0


@dataclass
class _Transaction:
    changes: dict[Key, Copy] = field(default_factory=dict)
    posts: list[str] = field(default_factory=list)
    takes: list[Key] = field(default_factory=list)
    # Copies that others cannot take until it ends, and that it leaves as they are.
    locks: set[Key] = field(default_factory=set)
    # Consumers that it has taken for: it may hold locks on their groups.
    groups: set[str] = field(default_factory=set)
    # How often the queue's functions had been changed when it first used the queue.
    used_at: int | None = None
    pause: bool | None = None
    is_reshaping: bool = False


class Queue:
    """The committed state, and what each session's open transaction adds to it."""

    def __init__(self, sessions: int, consumers: tuple[str, ...] = ("default",)) -> None:
        self.violations: list[str] = []
        self.consumers = consumers
        self.now = 0.0
        self.copies: dict[Key, Copy] = {}
        self.open = [_Transaction() for _ in range(sessions)]
        self.iids: dict[str, str] = {}
        self.consumed: dict[str, list[str]] = {consumer: [] for consumer in consumers}
        # Messages that had been committed when another one was posted.
        self.before: dict[str, set[str]] = {}
        self.is_paused = False
        self.shapes = 0
        self._posted = 0

    def keys(self, session: int) -> set[Key]:
        """Return all copies that this session's transaction could see."""
        return set(self.copies) | set(self.open[session].changes)

    def view(self, session: int, key: Key) -> Copy | None:
        """Return a copy as this session's transaction sees it."""
        return self.open[session].changes.get(key, self.copies.get(key))

    def post(
        self,
        session: int,
        label: str,
        iid: str,
        *,
        group: str | None = None,
        state: State = "ready",
        at: float = 0.0,
        after: frozenset[str] = frozenset(),
    ) -> None:
        """Add a message for every consumer."""
        transaction = self.open[session]
        self.iids[label] = iid
        self._posted += 1
        self.before[label] = {name for _, name in self.copies} | set(transaction.posts)
        transaction.posts.append(label)
        for consumer in self.consumers:
            transaction.changes[consumer, label] = Copy(state, group, None, at, after, self._posted)

    def change(self, session: int, key: Key, **changes: object) -> None:
        """Change a copy in this session's transaction."""
        copy = self.view(session, key)
        assert copy is not None, key
        self.open[session].changes[key] = replace(copy, **changes)  # type: ignore[arg-type]

    def take(
        self, session: int, consumer: str, amount: int, labels: list[str], was_blocked: bool
    ) -> None:
        """Compare what a take returned with what it had to return, and remove it."""
        self.open[session].groups.add(consumer)
        must, may = self.takable(session, consumer)
        got = set(labels)
        if len(got) != len(labels):
            self.violations.append(f"a take returned a message twice: {labels}")
        if not got <= may:
            self.violations.append(f"a take returned {sorted(got - may)}, which it must not")
        if not was_blocked and len(got) < amount and not must <= got:
            self.violations.append(f"a take returned {labels} and missed {sorted(must - got)}")
        for label in labels:
            key = consumer, label
            if self.view(session, key) is None:
                continue
            self.change(session, key, state="gone", token=None)
            self.open[session].takes.append(key)
            for successor in self._freed(session, label):
                self.change(session, successor, state="delayed")

    def _freed(self, session: int, label: str) -> list[Key]:
        """Return the messages that wait for nothing else, once all consumers are done with it."""
        if any(self._is_there(session, (consumer, label)) for consumer in self.consumers):
            return []
        keys = self.keys(session)
        found = []
        for key in keys:
            copy = self.view(session, key)
            if copy is not None and copy.state == "blocked" and label in copy.after:
                left = {
                    name
                    for name in copy.after
                    for consumer in self.consumers
                    if self._is_there(session, (consumer, name))
                }
                if not left:
                    found.append(key)
        return found

    def _is_there(self, session: int, key: Key) -> bool:
        copy = self.view(session, key)
        return copy is not None and copy.state != "gone"

    def takable(self, session: int, consumer: str) -> tuple[set[str], set[str]]:
        """Return the messages that a take must return now, and those that it may return."""
        must: set[str] = set()
        may: set[str] = set()
        pause = self.open[session].pause
        is_paused = self.is_paused if pause is None else pause
        # A transaction that has used the queue before may still run the functions of that time.
        is_old = self.open[session].used_at not in (None, self.shapes)
        if is_paused and not is_old and pause is None:
            return must, may
        others = [open_ for place, open_ in enumerate(self.open) if place != session]
        held = {key for open_ in others for key in (*open_.changes, *open_.locks)}
        groups_in_doubt = any(consumer in open_.groups for open_ in others)
        first: dict[str, tuple[int, str]] = {}
        busy: set[str] = set()
        keys = self.keys(session)
        for key in keys:
            copy = self.view(session, key)
            assert copy is not None
            if (
                key[0] != consumer
                or copy.group is None
                or copy.state in ("gone", "dead", "blocked")
            ):
                continue
            if copy.state in ("leased", "delayed"):
                busy.add(copy.group)
            first[copy.group] = min(
                first.get(copy.group, (copy.place, key[1])), (copy.place, key[1])
            )
        for key in keys:
            copy = self.view(session, key)
            assert copy is not None
            if key[0] != consumer:
                continue
            is_over = copy.state in ("leased", "delayed") and copy.at <= self.now
            if copy.state == "ready" or is_over:
                may.add(key[1])
            if copy.state != "ready" or key in held or is_paused or is_old:
                continue
            if copy.group is not None and (
                groups_in_doubt or copy.group in busy or first[copy.group][1] != key[1]
            ):
                continue
            must.add(key[1])
        return must, may

    def use(self, session: int) -> None:
        """Note that this session's transaction has used the queue."""
        if self.open[session].used_at is None:
            self.open[session].used_at = self.shapes

    def is_in_doubt(self, session: int, key: Key) -> bool:
        """Return whether another session's transaction has changed this copy."""
        return any(
            key in open_.changes or key in open_.locks
            for place, open_ in enumerate(self.open)
            if place != session
        )

    def committed_by(self, session: int) -> None:
        """Let a transaction take effect."""
        transaction = self.open[session]
        self.copies.update(transaction.changes)
        if transaction.pause is not None:
            self.is_paused = transaction.pause
        if transaction.pause is not None or transaction.is_reshaping:
            self.shapes += 1
        for consumer, label in transaction.takes:
            self._consume(consumer, label)
        self.open[session] = _Transaction()
        # A predecessor may have been consumed by several transactions, each of one consumer.
        for key, copy in list(self.copies.items()):
            if copy.state == "blocked" and not any(
                self.copies.get((consumer, name), Copy("gone")).state != "gone"
                for name in copy.after
                for consumer in self.consumers
            ):
                # Released by maintenance at the latest, so a take may return it and need not.
                self.copies[key] = replace(copy, state="delayed")

    def forget(self, session: int) -> None:
        """Forget a transaction that was rolled back."""
        self.open[session] = _Transaction()

    def _consume(self, consumer: str, label: str) -> None:
        if label in self.consumed[consumer]:
            self.violations.append(f"{consumer} consumed {label} twice")
        copy = self.copies[consumer, label]
        for other in self.consumed[consumer]:
            mate = self.copies[consumer, other]
            if copy.group is not None and mate.group == copy.group and label in self.before[other]:
                self.violations.append(f"{consumer} consumed {other} before {label} of its group")
            if label in mate.after:
                self.violations.append(f"{consumer} consumed {other}, which waits for {label}")
        self.consumed[consumer].append(label)

    def drained(self, consumer: str, labels: list[str], dead: list[str]) -> None:
        """Compare what was left for a consumer at the end, taken in this order."""
        expected = {
            label
            for (owner, label), copy in self.copies.items()
            if owner == consumer and copy.state not in ("gone", "dead")
        }
        buried = {
            label
            for (owner, label), copy in self.copies.items()
            if owner == consumer and copy.state == "dead"
        }
        if lost := expected - set(labels):
            self.violations.append(f"{consumer} lost {sorted(lost)}")
        if more := set(labels) - expected:
            self.violations.append(f"{consumer} got {sorted(more)} again or after a rollback")
        if len(set(labels)) != len(labels):
            self.violations.append(f"{consumer} got a message twice: {labels}")
        if buried != set(dead):
            self.violations.append(f"{consumer} has the dead {sorted(dead)}, not {sorted(buried)}")
        for label in labels:
            if label in expected:
                self.copies[consumer, label] = replace(self.copies[consumer, label], state="gone")
                self._consume(consumer, label)
