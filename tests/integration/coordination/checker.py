"""Checks recorded states of Readers against the Writer's history.

The Writer's history is the list of its events in order of position, without the cancelled ones.
Folding its first n events gives the n-th state of each entity. A Reader is right when every state
that it was seen in is one of those, n never goes back, and its last state is the last one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.integration.coordination.lab import ENTITIES, Lab

State = frozenset[tuple[str, str]]


@dataclass
class Recorder:
    """Looks at every Reader after each step and remembers what it saw."""

    lab: Lab
    seen: dict[tuple[str, str], list[State]] = field(default_factory=dict)

    def look(self) -> None:
        for reader in self.lab.readers:
            for entity in ENTITIES:
                states = self.seen.setdefault((reader, entity), [])
                state = _table(self.lab, reader, entity)
                if not states or states[-1] != state:
                    states.append(state)

    def check(self) -> None:
        """Raise AssertionError for anything that must not be."""
        history = self.lab.run(
            "writer",
            'select e."Id", t."Entity", t."Operation", p.after::text,'
            " coalesce(p.changed, coordination._changed(p.before, p.after))"
            ' from coordination."AppEvent" e join coordination.payload_row p on p.event_id = e."Id"'
            ' join coordination."AppEventType" t on t."Id" = p.type_id'
            ' where e."AppEventStatusId" <> 11 order by e."Position", p.sequence',
        )
        for entity in ENTITIES:
            states = _fold([row for row in history if row[1] == entity])
            assert states[-1] == _table(self.lab, "writer", entity), f"the Writer's {entity}"
            for reader in self.lab.readers:
                _follow(self.seen[reader, entity], states, f"{entity} at {reader}")


def _follow(seen: list[State], states: list[State], what: str) -> None:
    place = 0
    for number, state in enumerate(seen):
        while place < len(states) and states[place] != state:
            place += 1
        if place == len(states):
            kind = "out of order" if state in states else "one that the Writer never had"
            raise AssertionError(
                f"{what}: state {number} of {len(seen)} is {kind}: {sorted(state)}"
            )
    assert seen[-1] == states[-1], f"{what}: does not show the last state"


def _fold(history: list[tuple[Any, ...]]) -> list[State]:
    rows: dict[str, str] = {}
    states: list[State] = [frozenset()]
    for place, (event, _, operation, after, changed) in enumerate(history):
        row = json.loads(after)
        key = str(row["Id"])
        if operation == "Update" and changed:
            # Other columns may hold what a cancelled event wrote, which may also have made the row.
            row = {column: row[column] for column in changed}
            if key in rows:
                rows[key] = json.dumps(json.loads(rows[key]) | row, sort_keys=True)
        elif operation == "Delete":
            rows.pop(key, None)
        else:
            rows[key] = json.dumps(row, sort_keys=True)
        if place + 1 == len(history) or history[place + 1][0] != event:
            states.append(frozenset(rows.items()))
    return states


def _table(lab: Lab, part: str, entity: str) -> State:
    rows = lab.run(part, f'select "Id"::text, row_to_json(t)::text from "{entity}" t')
    return frozenset((key, json.dumps(json.loads(row), sort_keys=True)) for key, row in rows)
