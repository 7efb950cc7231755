"""One line per event. Written by clients, read by checkers.

| field | meaning |
|---|---|
| `time` | seconds since 1970 by the clock of this machine, which all clients share |
| `client`, `call` | who calls, and the number of the call in this client |
| `phase` | `invoke`, then `ok`, `refused` (certainly without effect) or `unknown`; `note` |
| `operation` | `post`, `lease`, `ack`, `extend`, `saga`, `handled`, `fault`, `effect` |

Further fields belong to the operation. An invocation without an answer is unknown.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Call", "Effect", "Fault", "History", "Recorder"]


class Recorder:
    """Writes the events of one client. A line is one write to the file, without a buffer."""

    def __init__(self, folder: Path, client: str) -> None:
        self.client = client
        folder.mkdir(parents=True, exist_ok=True)
        # A client that is started again has another process id: its calls are numbered from 1.
        file = folder / f"{client}.{os.getpid()}.jsonl"
        self.name = f"{client}.{os.getpid()}"
        # A client whose clock is made to jump is told the true one, relative to the monotonic one.
        self._base = float(os.environ.get("PROOF_CLOCK_BASE") or time.time() - time.monotonic())
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count(1)

    def invoke(self, operation: str, **fields: Any) -> int:
        """Record a call before it is made; return its number."""
        number = next(self._numbers)
        self._write(call=number, phase="invoke", operation=operation, **fields)
        return number

    def answer(self, call: int, operation: str, phase: str, **fields: Any) -> None:
        """Record the answer of a call."""
        self._write(call=call, phase=phase, operation=operation, **fields)

    def note(self, operation: str, **fields: Any) -> None:
        """Record something that happened, without a call."""
        self._write(call=next(self._numbers), phase="note", operation=operation, **fields)

    def now(self) -> float:
        """Return the seconds since 1970, whatever the process is made to take for its time."""
        return self._base + time.monotonic()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, **fields: Any) -> None:
        line = json.dumps(
            {"time": self.now(), "client": self.name, **fields}, separators=(",", ":")
        )
        os.write(self._file, line.encode() + b"\n")


@dataclass(slots=True)
class Call:
    """One call: invoked, and perhaps answered."""

    client: str
    operation: str
    invoked: float
    fields: dict[str, Any]
    answered: float | None = None
    phase: str = "unknown"
    answer: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Effect:
    """A row that a handler committed together with the message that it consumed.

    `number` ascends with the order of handling. `at` and `began` are the database's clock when the
    row was written and when its transaction began; `handled` is the clock of the clients.
    """

    number: int
    queue: str
    consumer: str
    key: str
    iid: str
    at: float
    began: float
    handled: float
    group: str | None = None
    sequence: int | None = None
    detail: str | None = None


@dataclass(slots=True)
class Fault:
    """A fault that was injected: when, which, where, and when it was healed."""

    kind: str
    target: str
    began: float
    ended: float


@dataclass
class History:
    """All calls, effects, notes and faults of one run."""

    calls: list[Call] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[Call] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> History:
        """Read every file of a folder."""
        history = cls()
        for file in sorted(folder.glob("*.jsonl")):
            history.add(_lines(file))
        history.calls.sort(key=lambda call: call.invoked)
        history.faults.sort(key=lambda fault: fault.began)
        return history

    def add(self, events: Iterator[dict[str, Any]]) -> None:
        """Add the events of one file."""
        opened: dict[tuple[str, int], Call] = {}
        for event in events:
            at, client = event.pop("time"), event.pop("client")
            number, phase, operation = (event.pop(name) for name in ("call", "phase", "operation"))
            if phase == "invoke":
                call = opened[client, number] = Call(client, operation, at, event)
                self.calls.append(call)
            elif operation == "effect":
                self.effects.append(Effect(**event))
            elif operation == "fault":
                self.faults.append(Fault(**event))
            elif phase == "note":
                self.notes.append(Call(client, operation, at, event, at, "ok"))
            else:
                call = opened[client, number]
                call.answered, call.phase, call.answer = at, phase, event

    def of(self, operation: str, queue: str | None = None) -> list[Call]:
        """Return the calls of one operation, of one queue when it is given."""
        return [
            call
            for call in self.calls
            if call.operation == operation and (queue is None or call.fields.get("queue") == queue)
        ]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            # A client that was killed may have left half a line.
            if line.endswith("\n"):
                yield json.loads(line)
