"""The ledger of the bridge: what arrives several times is posted once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import cast

import psycopg
from psycopg import Connection

from proof.interleavings.explorer import Checker, Scenario, Statement
from proof.interleavings.session import Answer

__all__ = ["BRIDGE_SCENARIOS"]

SOURCE = "erp@abc123"


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select mbus.create_queue('q', payload => 'text')")
        connection.execute("select bridge.open_inlet('in', %s, 'q')", (SOURCE,))


class LedgerChecker:
    """Messages that arrived in a committed transaction are on the queue once, others are not."""

    def __init__(self, connection: Connection, number: int, sessions: int) -> None:
        self.violations: list[str] = []
        self.number = number
        self._connection = connection
        self.arrived: set[str] = set()
        self.open: list[set[str]] = [set() for _ in range(sessions)]
        connection.execute("select setval('bridge.turned_at', 0)")

    def committed(self, session: int) -> None:
        self.arrived |= self.open[session]
        self.open[session] = set()

    def rolled_back(self, session: int) -> None:
        self.open[session] = set()

    def finish(self) -> None:
        rows = self._connection.execute(
            "select data from mbus.consumen_q_by_default(1000)"
        ).fetchall()
        counts = Counter(data for (data,) in rows)
        if twice := sorted(data for data, count in counts.items() if count > 1):
            self.violations.append(f"posted more than once: {twice}")
        if lost := sorted(self.arrived - set(counts)):
            self.violations.append(f"lost: {lost}")
        if more := sorted(set(counts) - self.arrived):
            self.violations.append(f"posted though it was rolled back: {more}")


def _check(sessions: int) -> type[LedgerChecker]:
    class Sized(LedgerChecker):
        def __init__(self, connection: Connection, number: int) -> None:
            super().__init__(connection, number, sessions)

    return Sized


@dataclass(frozen=True)
class Receive:
    """A batch arrives; words are ids of other senders, figures are numbers of iids."""

    ids: tuple[str, ...]
    batch: int | None = None

    def __str__(self) -> str:
        return f"receive {' '.join(self.ids)}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        number = cast("LedgerChecker", checker).number
        # Numbers and words of their own for each run.
        ids = [
            f"q.{number * 100 + int(name)}@abc123" if name.isdigit() else f"{name}-{number}"
            for name in self.ids
        ]
        names = [f"{number}.{name}" for name in self.ids]
        nothing = "array_fill(null::text, array[cardinality($2::text[])])"
        batch = "null" if self.batch is None else str(number * 100 + self.batch)
        return (
            f"select posted, dropped from bridge.receive('in', '{SOURCE}', {batch}, $1::text[],"
            f" $2::text[], array_fill('seenby=>{{erp}}'::text, array[cardinality($2::text[])]),"
            f" {nothing}, {nothing}::timestamptz[], {nothing}::timestamptz[])",
            ("{" + ",".join(ids) + "}", "{" + ",".join(names) + "}"),
        )

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        ledger = cast("LedgerChecker", checker)
        if answer.sqlstate is not None:
            return False
        names = {f"{ledger.number}.{name}" for name in self.ids}
        posted = int(answer.rows[0][0] or 0)
        known = names & (ledger.arrived | ledger.open[session])
        doubt = {name for open_ in ledger.open for name in open_} & names - known
        if not was_blocked and not doubt and posted != len(names - known):
            ledger.violations.append(f"{self} posted {posted}, not {len(names - known)}")
        ledger.open[session] |= names
        return True


@dataclass(frozen=True)
class Settle:
    """Maintenance of the ledger; `committed` names the batch that the source has confirmed."""

    committed: int | None = None
    keep: str = "1 day"

    def __str__(self) -> str:
        return f"settle, keep {self.keep}"

    def statement(self, checker: Checker, session: int) -> Statement | None:
        number = cast("LedgerChecker", checker).number
        batches = "{}" if self.committed is None else f"{{{number * 100 + self.committed}}}"
        return (
            f"select bridge.settle('in', '{SOURCE}', $1::bigint[], '{{}}', $2::interval)",
            (batches, self.keep),
        )

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        return answer.sqlstate is None


BRIDGE_SCENARIOS = (
    Scenario(
        "ledger",
        "batches that overlap arrive over three connections",
        _prepare,
        (
            ((Receive(("1", "2")),), (Receive(("3",)),)),
            ((Receive(("2", "3", "4")),),),
            ((Receive(("4", "1")),),),
        ),
        _check(3),
    ),
    Scenario(
        "ledger_settle",
        "a batch comes again while its rows in the ledger are merged",
        _prepare,
        (
            ((Receive(("1", "2"), 1),), (Receive(("2", "3"), 2),)),
            ((Settle(1),), (Settle(2),)),
            ((Receive(("1", "2", "3"), 3),),),
        ),
        _check(3),
        max_deviations=1,
    ),
    Scenario(
        "ledger_words",
        "ids of other senders, while the tables that hold them change their roles",
        _prepare,
        (
            ((Receive(("y",)),), (Receive(("x",)),)),
            ((Settle(keep="0 s"),),),
            ((Receive(("x",)),),),
        ),
        _check(3),
    ),
)
