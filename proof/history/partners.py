"""Checkers of what partners saw: ERPs, Readers of coordination, and a source of files."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import zip_longest
from typing import Any

from proof.history.checkers import Finding
from proof.history.record import Call, History

__all__ = ["check_files", "check_hand_over", "check_readers"]

# A version of a file that was there for so long must have been imported.
SEEN_SECONDS = 120.0


def check_hand_over(history: History, database: str) -> Finding:
    """Every message that was accepted for a database is in the ERP's own database once."""
    finding = Finding(f"{database}: messages are handed over exactly once")
    rows = Counter(
        note.fields["key"]
        for note in _notes(history, "handed_over")
        if note.fields["database"] == database
    )
    accepted: dict[str, bool] = {}
    for call in history.of("send"):
        if call.fields["database"] == database:
            key = call.fields["key"]
            accepted[key] = accepted.get(key, False) or call.phase == "ok"
    finding.checked = len(accepted.keys() | rows.keys())
    for key, count in rows.items():
        if key not in accepted:
            finding.violations.append(f"{database}: {key} was handed over, which no client sent")
        elif count > 1:
            finding.violations.append(f"{database}: {key} was handed over {count} times")
    finding.lost += [
        f"{database}: {key} was accepted and never handed over"
        for key, is_accepted in accepted.items()
        if is_accepted and key not in rows
    ]
    return finding


def check_readers(history: History) -> Finding:
    """A Reader shows only states that the Writer had, in their order, and at last the last one.

    There is one writer at a time, which records the rows before and after each transaction. One
    without an answer has committed if the next one begins with its rows.
    """
    finding = Finding("coordination: a Reader shows states of the Writer, in order")
    writes = history.of("write")
    states: list[Any] = [{}]
    for call, following in zip_longest(writes, writes[1:]):
        is_known = following is not None and call.phase != "ok"
        if is_known and following.fields["before"] != call.fields["after"]:
            continue
        if call.fields["before"] != states[-1]:
            finding.violations.append(
                f"the Writer began with {call.fields['before']}, not with {states[-1]}"
            )
        states.append(call.fields["after"])
    place = 0
    shown = _notes(history, "shown")
    for note in shown:
        finding.checked += 1
        state = note.fields["rows"]
        found = next((n for n in range(place, len(states)) if states[n] == state), None)
        if found is None:
            kind = "again or out of order" if state in states else "which the Writer never had"
            finding.violations.append(f"a Reader showed {state}, {kind}")
        else:
            place = found
    # Whether the last write was done is not known if it had no answer.
    last = states[-2:] if writes and writes[-1].phase != "ok" else states[-1:]
    if writes and (not shown or shown[-1].fields["rows"] not in last):
        finding.lost.append(f"no Reader showed the last state, {states[-1]}")
    return finding


def check_files(history: History) -> Finding:
    """Each version of a file became one object and one notice; a short-lived one may have none.

    Every version has its own content, so the checksum names it. Files that others put beside them
    are not judged.
    """
    finding = Finding("intake: one object and one notice for each version of a file")
    objects = Counter(note.fields["sha256"] for note in _notes(history, "object"))
    notices = Counter(note.fields["sha256"] for note in _notes(history, "notice"))
    versions: dict[str, list[Call]] = defaultdict(list)
    for call in history.of("put"):
        versions[call.fields["name"]].append(call)
    for name, puts in versions.items():
        for put, following in zip_longest(puts, puts[1:]):
            finding.checked += 1
            sha256 = put.fields["sha256"]
            what = f"{name} of {put.invoked:.0f}"
            for kind, count in (("objects", objects[sha256]), ("notices", notices[sha256])):
                if count > 1:
                    finding.violations.append(f"{what} has {count} {kind}")
            if notices[sha256] and not objects[sha256]:
                finding.violations.append(f"{what} has a notice and no object")
            was_seen = following is None or following.invoked - put.invoked > SEEN_SECONDS
            if put.phase == "ok" and was_seen and not notices[sha256]:
                finding.lost.append(f"{what} has no notice")
    return finding


def _notes(history: History, operation: str) -> list[Call]:
    found = (note for note in history.notes if note.operation == operation)
    return sorted(found, key=lambda note: note.invoked)
