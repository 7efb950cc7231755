"""The verdict on one run: checkers over the history, and what the driver itself has seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import psycopg
from psycopg.rows import dict_row

from proof.faults.kinds import KINDS
from proof.faults.workload import IMPORTS, QUEUES, STEPS
from proof.history import checkers
from proof.history.checkers import Finding
from proof.history.record import Call, Fault, History, Recorder

__all__ = ["Verdict", "judge", "shortened", "store_effects"]

# After such a fault has been healed, clients may still be acknowledged by a primary that is
# about to be replaced: until Patroni has demoted it.
DEMOTION_SECONDS = 20.0
EXAMPLES = 5


@dataclass
class Verdict:
    """What one run has shown."""

    mode: str
    operations: int
    faults: list[Fault]
    findings: list[Finding]
    longest_gap: float
    gaps: dict[str, float]
    violations: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unanswered: int = 0
    # What an operator had to do: standbys copied again, nodes of RabbitMQ started again.
    repairs: tuple[int, int] = (0, 0)


def store_effects(dsn: str, recorder: Recorder) -> None:
    """Copy what handlers committed into the history."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        with connection.cursor("effects") as cursor:
            cursor.itersize = 10_000
            for row in cursor.execute("select * from proof_effect order by number"):
                recorder.note("effect", **row)
        for row in connection.execute("select key from proof_outbox").fetchall():
            recorder.note("outbox", key=row["key"])


def judge(history: History, *, is_synchronous: bool, has_bridges: bool = False) -> Verdict:
    """Run every checker; decide whether what asynchronous replication lost is as documented."""
    findings = [
        checkers.check_delivery(history, queue, consumers)
        for queue, consumers in QUEUES.items()
        if queue not in ("leases", "tasks")
    ]
    findings += [
        checkers.check_exactly_once(history, queue)
        for queue in QUEUES
        if queue not in ("leases", "tasks")
    ]
    findings += [
        _check_outbox(history),
        checkers.check_order(history, "groups"),
        checkers.check_delay(history, "later"),
        checkers.check_expiry(history, "short"),
        checkers.check_leases(history, "leases"),
        checkers.check_leases(history, "tasks"),
        checkers.check_sagas(history, "trips", STEPS),
    ]
    if has_bridges:
        findings.append(checkers.check_bridge(history, "exports", IMPORTS))
    answered = [call.answered for call in history.of("post") if _is_ok(call)]
    moments = sorted(moment for moment in answered if moment is not None)
    verdict = Verdict(
        mode="synchronous" if is_synchronous else "asynchronous",
        operations=_operations(history),
        faults=history.faults,
        findings=findings,
        longest_gap=checkers.longest_gap(moments),
        gaps=_gaps(history.faults, moments),
        unanswered=sum(call.phase == "unknown" for call in history.calls),
    )
    windows = _loss_windows(history)
    for finding in findings:
        verdict.violations += shortened(finding.promise, finding.violations)
        verdict.lost += finding.lost
        wrong = finding.lost if is_synchronous else _unexplained(finding, windows)
        verdict.violations += shortened(finding.promise, wrong)
    return verdict


def _check_outbox(history: History) -> Finding:
    """A message exists if and only if the transaction that posted it has committed."""
    finding = Finding("outbox: a message and the row of its transaction, both or neither")
    rows = {note.fields["key"] for note in history.notes if note.operation == "outbox"}
    got = {effect.key for effect in history.effects if effect.queue == "outbox"}
    finding.checked = len(rows | got)
    finding.violations += [
        f"outbox: the row {key} exists without its message" for key in rows - got
    ]
    finding.violations += [
        f"outbox: the message {key} exists without its row" for key in got - rows
    ]
    return finding


def _is_ok(call: Call) -> bool:
    return call.phase == "ok"


def _operations(history: History) -> int:
    """Count messages: acknowledged posts, committed effects, leased work, acks, sagas."""
    counted = len(history.effects)
    counted += sum(note.operation == "handled" for note in history.notes)
    for call in history.calls:
        if _is_ok(call):
            counted += len(call.fields["messages"]) if call.operation == "post" else 1
    return counted


def _gaps(faults: Iterable[Fault], moments: list[float]) -> dict[str, float]:
    """Return, for each kind, the longest time without an acknowledged post that it overlaps."""
    wide = [(before, after) for before, after in pairwise(moments) if after - before > 1]
    found: dict[str, float] = defaultdict(float)
    for fault in faults:
        for before, after in wide:
            if before < fault.ended and fault.began < after:
                found[fault.kind] = max(found[fault.kind], after - before)
    return found


def _loss_windows(history: History) -> list[tuple[float, float]]:
    """Return when a commit may have been acknowledged that a failover took back.

    That is from the fault because of which another node was promoted until the former primary is
    demoted. A fault without a promotion loses nothing.
    """
    windows = []
    for note in history.notes:
        if note.operation != "promotion":
            continue
        at = note.fields["at"]
        # The last one: the next fault begins when the cluster has recovered.
        began, ended = max(
            (
                (fault.began, fault.ended)
                for fault in history.faults
                if KINDS[fault.kind].can_fail_over
                and fault.began <= at <= fault.ended + DEMOTION_SECONDS
            ),
            default=(at, at),
        )
        windows.append((began - 1, max(at, ended) + DEMOTION_SECONDS))
    return windows


def _unexplained(finding: Finding, windows: list[tuple[float, float]]) -> list[str]:
    """Return what is lost although no failover can have lost what was acknowledged then."""
    return [
        f"{text}, and there was no failover"
        for text, at in finding.moments.items()
        if not any(began <= at <= ended for began, ended in windows)
    ]


def shortened(promise: str, found: list[str]) -> list[str]:
    """Return the first of them, and how many more there are."""
    more = len(found) - EXAMPLES
    return found[:EXAMPLES] + ([f"{promise}: {more} more"] if more > 0 else [])


def count_kinds(faults: Iterable[Fault]) -> Counter[str]:
    """Count faults by kind."""
    return Counter(fault.kind for fault in faults)
