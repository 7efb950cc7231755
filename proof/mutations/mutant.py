"""One change of a source text, and how it is named."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

__all__ = ["Edit", "Mutant", "number"]


@dataclass(frozen=True)
class Edit:
    """Replace the text between two offsets."""

    start: int
    end: int
    after: str
    operator: str
    function: str


@dataclass(frozen=True)
class Mutant:
    """A source file with one change.

    Its name has no line number, so that it stays the same when other lines change: file, function,
    operator, the text before and after, and which of equal ones in that function.
    """

    file: str
    function: str
    operator: str
    before: str
    after: str
    place: int
    start: int
    end: int
    line: int

    @property
    def name(self) -> str:
        """Eight digits that stand for the mutant, also in explained.toml."""
        text = "\n".join(
            (self.file, self.function, self.operator, self.before, self.after, str(self.place))
        )
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def apply(self, text: str) -> str:
        """Return the mutated text of the file."""
        return text[: self.start] + self.after + text[self.end :]


def number(file: str, text: str, edits: Iterable[Edit]) -> Iterator[Mutant]:
    """Make mutants of the edits, in their order in the file."""
    equal: Counter[tuple[str, str, str, str]] = Counter()
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.after)):
        mutant = Mutant(
            file,
            edit.function,
            edit.operator,
            text[edit.start : edit.end],
            edit.after,
            1,
            edit.start,
            edit.end,
            text.count("\n", 0, edit.start) + 1,
        )
        # Only white space differs: the same program.
        if mutant.before.split() == mutant.after.split():
            continue
        kind = (mutant.function, mutant.operator, mutant.before, mutant.after)
        equal[kind] += 1
        yield replace(mutant, place=equal[kind])
