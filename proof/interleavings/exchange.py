"""The exchange's marker: each message is applied in the ERP's database exactly once.

The ERP's tables are in the same database as the exchange's journal, in transactions of their own:
what matters is the order of the commits.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
from psycopg import Connection

from proof.interleavings.explorer import Checker, Scenario, Statement
from proof.interleavings.session import Answer

__all__ = ["EXCHANGE_SCENARIOS"]

TABLES = """
create table exchange_marker (
  process_id text primary key, outcome text not null, marker_seq bigint);
create table applied (message bigint not null, process_id text not null);
select exchange.add_database('erp');
select exchange.take_over(gen_random_uuid(), 'proof', 600, 600, 60, 1000, 'go_on', '1 day');
select exchange.leave(epoch) from exchange.server;
"""
# Marker and messages in one statement: they belong to one transaction, which must not be divided.
APPLY = (
    "with marked as ("
    "  insert into exchange_marker select $1, 'COMMITTED', coalesce(max(marker_seq), 0) + 1"
    "  from exchange_marker returning process_id)"
    " insert into applied select f.number, f.process_id from exchange.process_file f"
    " join marked m on m.process_id = f.process_id"
)
PROBE = "insert into exchange_marker values ($1, 'ABORTED', null) on conflict do nothing"
START = (
    "select exchange.start_process(null, %s, %s, 'erp', %s, %s, 1, 1000000, null, %s, %s::bigint)"
)
LATER_SECONDS = 100_000


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES)


@dataclass
class _Instance:
    """What one instance of the ERP knows."""

    attempts: int = 0
    highest: int | None = None
    process: str | None = None
    is_ready: bool = False
    is_applied: bool | None = None
    in_doubt: str | None = None
    outcome: str | None = None
    # What the open transaction will let it know.
    pending: dict[str, Any] = field(default_factory=dict)


class MarkerChecker:
    """Two messages, and the instances that take them."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.violations: list[str] = []
        self.number = number
        self.connection = connection
        self.instances = [_Instance() for _ in range(3)]
        items = [
            {
                "item": place, "database": "erp", "sender": "s", "id": f"m{number}-{place}",
                "size": 1, "sha256": "0", "digest": f"{number}-{place}",
                "temporary": f"t{number}-{place}", "is_group": False,
            }
            for place in (1, 2)
        ]  # fmt: skip
        rows = connection.execute(
            "select number from exchange.intake(null, %s::jsonb)", (json.dumps(items),)
        ).fetchall()
        self._messages = {number for (number,) in rows}

    def committed(self, session: int) -> None:
        instance = self.instances[session]
        for name, value in instance.pending.items():
            setattr(instance, name, value)
        instance.pending = {}

    def rolled_back(self, session: int) -> None:
        instance = self.instances[session]
        if "is_applied" in instance.pending:
            instance.is_applied = False
        instance.pending = {}

    def finish(self) -> None:
        """Let one more instance settle what is in doubt and take what is left."""
        execute = self.connection.execute
        for attempt in range(20):
            while True:
                swept = execute(
                    "select exchange.sweep(null, %s, false)", (LATER_SECONDS * 10,)
                ).fetchone()
                if swept is None or swept[0] is None:
                    break
            highest = execute("select coalesce(max(marker_seq), 0) from exchange_marker").fetchone()
            assert highest is not None
            resolved = {}
            for (process,) in execute(
                "select id from exchange.process where state = 'UNKNOWN'"
            ).fetchall():
                execute(
                    "insert into exchange_marker values (%s, 'ABORTED', null)"
                    " on conflict do nothing",
                    (process,),
                )
                row = execute(
                    "select outcome from exchange_marker where process_id = %s", (process,)
                ).fetchone()
                assert row is not None
                resolved[process] = row[0]
            row = execute(
                START,
                (
                    0, "last", "last", f"last-{self.number}-{attempt}", json.dumps(resolved),
                    highest[0],
                ),
            ).fetchone()  # fmt: skip
            assert row is not None
            answer = row[0]
            if answer["status"] == "IDLE":
                break
            if answer["status"] == "STARTED":
                process = answer["process"]["id"]
                execute("select exchange.prepare(null, 0, 'last', %s, 'm', '[]', '{}')", (process,))
                execute(APPLY.replace("$1", "%s"), (process,))
                execute(
                    "select exchange.end_process(null, 0, 'commit', 'last', %s, null, null)",
                    (process,),
                )
        else:
            self.violations.append("messages are left that no process gets")
        rows = execute(
            "select message from applied where message = any (%s)", (sorted(self._messages),)
        ).fetchall()
        counts = Counter(message for (message,) in rows)
        if any(counts[message] != 1 for message in self._messages):
            self.violations.append(f"applied {dict(counts)}, and there are {self._messages}")
        (told,) = execute(
            "select count(*) from alerts.report where key like 'exchange/contradiction/%'"
        ).fetchone() or (0,)
        if told:
            self.violations.append("a contradiction was reported")


class _Step:
    def __str__(self) -> str:
        return type(self).__name__.lower()

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        if answer.sqlstate is not None:
            return False
        markers = cast("MarkerChecker", checker)
        self.check(markers, markers.instances[session], answer)
        return True

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        return

    def statement(self, checker: Checker, session: int) -> Statement | None:
        markers = cast("MarkerChecker", checker)
        return self.call(markers, markers.instances[session], f"c{session}")

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        raise NotImplementedError


class ReadMarker(_Step):
    """Reads the highest marker."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        return "select coalesce(max(marker_seq), 0) from exchange_marker", ()

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        instance.highest = int(answer.rows[0][0] or 0)


class Start(_Step):
    """API_1, with the outcome that a probe has found."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        if instance.highest is None or instance.process is not None:
            return None
        instance.attempts += 1
        resolved = (
            {instance.in_doubt: instance.outcome} if instance.in_doubt and instance.outcome else {}
        )
        attempt = f"{client}-{checker.number}-{instance.attempts}"
        text = START % ("0", "$1", "$2", "$3", "$4::jsonb", "$5")
        return text, (client, client, attempt, json.dumps(resolved), str(instance.highest))

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        found = json.loads(answer.rows[0][0] or "{}")
        if found["status"] == "STARTED":
            instance.pending["process"] = found["process"]["id"]
        elif found["status"] == "RESOLVE":
            instance.pending["in_doubt"] = found["processes"][0]
            instance.pending["outcome"] = None


class Prepare(_Step):
    """API_3."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        if instance.process is None:
            return None
        text = "select exchange.prepare(null, 0, $1, $2, 'm', '[]', '{}') ->> 'status'"
        return text, (client, instance.process)

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        if answer.rows[0][0] == "OK":
            instance.pending["is_ready"] = True


class Apply(_Step):
    """Writes the marker and applies the messages; a probe may have been there before."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        return (APPLY, (instance.process,)) if instance.is_ready else None

    def ended(self, checker: Checker, session: int, answer: Answer, was_blocked: bool) -> bool:
        instance = cast("MarkerChecker", checker).instances[session]
        instance.pending["is_applied"] = True
        return answer.sqlstate in (None, "23505")


class End(_Step):
    """API_4 or API_5, by what became of the ERP's transaction."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        if instance.process is None or instance.is_applied is None:
            return None
        text = "select exchange.end_process(null, 0, $1, $2, $3, null, null) ->> 'status'"
        return text, ("commit" if instance.is_applied else "abort", client, instance.process)

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        status = answer.rows[0][0]
        if status not in ("OK", "CONFLICT") or (status == "CONFLICT" and instance.is_applied):
            checker.violations.append(f"the end of {instance.process} was answered with {status}")


class Sweep(_Step):
    """Time is up for a process."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        return f"select exchange.sweep(null, {LATER_SECONDS}, false)", ()


class Probe(_Step):
    """Inserts the key of a process in doubt: it can be committed no more, or was."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        return (PROBE, (instance.in_doubt,)) if instance.in_doubt else None


class ReadOutcome(_Step):
    """Reads the marker of the process in doubt."""

    def call(self, checker: MarkerChecker, instance: _Instance, client: str) -> Statement | None:
        text = "select outcome from exchange_marker where process_id = $1"
        return (text, (instance.in_doubt,)) if instance.in_doubt else None

    def check(self, checker: MarkerChecker, instance: _Instance, answer: Answer) -> None:
        if answer.rows:
            instance.pending["outcome"] = answer.rows[0][0]


WORK = ((ReadMarker(),), (Start(),), (Prepare(),), (Apply(),), (End(),))

EXCHANGE_SCENARIOS = (
    Scenario(
        "marker",
        "an instance commits while its process is put in doubt and another instance settles it",
        _prepare,
        (WORK, ((Sweep(),), (ReadMarker(), Start()), (Probe(),), (ReadOutcome(), Start()))),
        MarkerChecker,
        max_deviations=1,
    ),
    Scenario(
        "marker_two",
        "two instances of one database, and time-outs",
        _prepare,
        (WORK, WORK, ((Sweep(),),)),
        MarkerChecker,
        max_deviations=1,
    ),
)
