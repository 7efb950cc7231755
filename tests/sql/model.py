"""A small model of one queue: what may be delivered to whom, and what must not be lost."""

from __future__ import annotations

from dataclasses import dataclass, field

CLASSES = ("high", "normal", "low")


@dataclass
class Copy:
    """One consumer's copy of a message."""

    number: int
    iid: str
    priority: str
    group: str | None
    state: str = "ready"  # ready, held, leased, delayed, gone
    holder: int | None = None
    token: int | None = None
    is_fresh: bool = True
    due: float = 0.0


@dataclass
class Model:
    """Copies per consumer, and the time that has passed."""

    copies: dict[str, dict[int, Copy]] = field(default_factory=lambda: {"default": {}})
    now: float = 0.0
    posted: int = 0

    def post(self, iid: str, priority: str, group: str | None, delay: float) -> None:
        self.posted += 1
        for mine in self.copies.values():
            copy = Copy(self.posted, iid, priority, group)
            if delay:
                # It comes after those that were posted while it waited.
                copy.state, copy.due, copy.is_fresh = "delayed", self.now + delay, False
            mine[self.posted] = copy

    def eligible(self, consumer: str, holder: int | None = None) -> set[int]:
        """Return what this consumer may get now: of each group the first, if none is in flight.

        A transaction may go on with a group that it has in hand itself.
        """
        mine = self.copies[consumer].values()
        busy = {
            c.group
            for c in mine
            if c.group and (c.state == "leased" or (c.state == "held" and c.holder != holder))
        }
        busy |= {c.group for c in mine if c.group and c.state == "delayed" and c.token}
        found: set[int] = set()
        for copy in sorted(mine, key=lambda c: (not c.token, c.number)):
            is_due = copy.state == "ready" or (copy.state == "delayed" and copy.due <= self.now)
            if not is_due:
                continue
            if copy.group is not None:
                is_retry = copy.state == "delayed" and copy.token is not None
                if copy.group in busy and not is_retry:
                    continue
                busy.add(copy.group)
            found.add(copy.number)
        return found

    def take(self, consumer: str, numbers: list[int], holder: int) -> None:
        for number in numbers:
            copy = self.copies[consumer][number]
            copy.state, copy.holder = "held", holder

    def end(self, holder: int, is_committed: bool) -> None:
        for mine in self.copies.values():
            for copy in mine.values():
                if copy.state == "held" and copy.holder == holder:
                    copy.state = "gone" if is_committed else "ready"
                    copy.holder = None

    def left(self, consumer: str) -> set[int]:
        return {c.number for c in self.copies[consumer].values() if c.state != "gone"}
