"""A schedule of faults: the same seed gives the same one again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from proof.faults.kinds import KINDS, Kind

__all__ = ["Entry", "generate", "load", "save"]


@dataclass(frozen=True)
class Entry:
    """One fault: its kind, how long it lasts, the pause after it, the seed of its own choices.

    Targets are roles (the primary, a client): which process has the role is found when it begins.
    """

    kind: str
    seconds: float
    pause: float
    seed: int


def generate(seed: int, kinds: list[Kind]) -> Iterator[Entry]:
    """Yield entries without end; each kind once before chance decides by weight."""
    chance = Random(seed)
    first = list(kinds)
    chance.shuffle(first)
    while True:
        [kind] = [first.pop()] if first else chance.choices(kinds, [each.weight for each in kinds])
        pause = chance.uniform(0.2, 2) if kind.lane == "client" else chance.uniform(1, 4)
        yield Entry(
            kind.name,
            round(chance.uniform(*kind.seconds), 2),
            round(pause, 2),
            chance.randrange(1 << 30),
        )


def save(file: Path, entries: list[Entry]) -> None:
    """Write the entries that were played."""
    text = json.dumps([asdict(entry) for entry in entries], indent=1)
    file.write_text(text + "\n", encoding="utf-8")


def load(file: Path) -> list[Entry]:
    """Read a script: a file that `save` wrote, or one written by hand."""
    entries = [Entry(**each) for each in json.loads(file.read_text(encoding="utf-8"))]
    unknown = {entry.kind for entry in entries} - KINDS.keys()
    if unknown:
        raise ValueError(f"no such faults: {', '.join(sorted(unknown))}")
    return entries
