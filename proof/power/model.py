"""Which trees a power loss may leave, under the rules of a file system with a journal.

| | ordered | unordered |
|---|---|---|
| changes of names | in one order: those before a kept one are kept | in order within a folder |
| unsynced writes | kept or absent | kept, absent, zeroed or cut in half |
| fsync of a file | its content | its content |
| fsync of a folder | its names, and all changes of names before them | its names |

A rename between two folders is one change of both. The name of a file is never kept by an fsync of
the file alone, and that of a folder never by an fsync of the folder: this is what POSIX promises,
less than most file systems do.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from proof.power.trace import Operation, Recording, Tree

__all__ = ["MAX_PENDING", "RULES", "Rule", "State", "states"]

Rule = Literal["ordered", "unordered"]
RULES: tuple[Rule, ...] = get_args(Rule)
# With more operations pending, only prefixes and single drops are tried, not all subsets.
MAX_PENDING = 8

_Loss = Literal["absent", "zeroed", "cut"]
_LOSSES: dict[Rule, tuple[_Loss, ...]] = {
    "ordered": ("absent",),
    "unordered": ("absent", "zeroed", "cut"),
}


@dataclass(frozen=True)
class State:
    """What is on the disk after a power loss, and what had been promised before it."""

    # The point of the power loss and the operations that were lost.
    text: str
    tree: Tree
    promises: tuple[bytes, ...]

    @functools.cached_property
    def key(self) -> str:
        """Return a hash of everything that a check can depend on."""
        found = hashlib.sha256(repr(self.promises).encode())
        for path, content in sorted(self.tree.paths().items()):
            found.update(repr((path, content)).encode())
        return found.hexdigest()


def states(recording: Recording, rule: Rule, *, is_end_only: bool = False) -> Iterator[State]:
    """Yield every state once: each pair of a tree and the promises before the power loss.

    With `is_end_only` the power is lost after the last operation, else after each of them.
    """
    seen: set[str] = set()
    journal = _Journal(recording, rule)
    end = len(recording.operations)
    for crashed_at in (end,) if is_end_only else range(end + 1):
        for state in journal.states_at(crashed_at):
            if (key := state.key) not in seen:
                seen.add(key)
                yield state


class _Journal:
    """What depends on what in a recording, and what is durable at each point."""

    def __init__(self, recording: Recording, rule: Rule) -> None:
        self._recording = recording
        self._rule = rule
        self._needs: list[frozenset[int]] = []
        # What was kept and lost in trees that were made already: their number is large.
        self._made: set[object] = set()
        self._durable: list[frozenset[int]] = [frozenset()]
        durable: set[int] = set()
        for index, operation in enumerate(recording.operations):
            self._needs.append(frozenset(self._before(index, operation)))
            if operation.kind == "sync":
                for change in self._covered(index, operation.inode):
                    durable |= {change, *self._all_needs(change)}
            self._durable.append(frozenset(durable))

    def states_at(self, crashed_at: int) -> Iterator[State]:
        """Yield the states after a power loss at one point; some of them more than once."""
        operations = self._recording.operations[:crashed_at]
        changes = [
            index
            for index, operation in enumerate(operations)
            if operation.kind in ("name", "write", "truncate")
        ]
        durable = self._durable[crashed_at]
        pending = [index for index in changes if index not in durable]
        promises = tuple(each.data for each in operations if each.kind == "promise")
        for lost in self._losses(pending):
            writes = frozenset(index for index in lost if operations[index].kind == "write")
            kept = frozenset(changes) - lost
            for loss in _LOSSES[self._rule] if writes else ("absent",):
                made = (kept, loss, writes if loss != "absent" else None, len(promises))
                if made in self._made:
                    continue
                self._made.add(made)
                tree = self._tree(changes, lost, loss)
                yield State(self._text(crashed_at, lost, loss), tree, promises)

    def _losses(self, pending: list[int]) -> Iterator[frozenset[int]]:
        """Yield sets of operations that can be lost together."""
        if len(pending) <= MAX_PENDING:
            for count in range(len(pending) + 1):
                for lost in map(frozenset, itertools.combinations(pending, count)):
                    if not any(self._needs[kept] & lost for kept in set(pending) - lost):
                        yield lost
            return
        for length in range(len(pending) + 1):
            yield frozenset(pending[length:])
        for dropped in pending:
            dependent = {dropped}
            for index in pending:
                if self._needs[index] & dependent:
                    dependent.add(index)
            yield frozenset(dependent)

    def _text(self, crashed_at: int, lost: frozenset[int], loss: _Loss) -> str:
        texts = [operation.text for operation in self._recording.operations]
        last = texts[crashed_at - 1] if crashed_at else "the start"
        named = ", ".join(texts[index] for index in sorted(lost)) or "nothing"
        return f"{self._rule}, power lost after [{last}], {loss}: [{named}]"

    def _tree(self, changes: list[int], lost: frozenset[int], loss: _Loss) -> Tree:
        tree = self._recording.before.copy()
        for index in changes:
            operation = self._recording.operations[index]
            if index not in lost:
                operation.apply(tree)
            elif operation.kind == "write" and loss == "zeroed":
                replace(operation, data=bytes(len(operation.data))).apply(tree)
            elif operation.kind == "write" and loss == "cut":
                replace(operation, data=operation.data[: len(operation.data) // 2]).apply(tree)
        return tree

    def _before(self, index: int, operation: Operation) -> Iterator[int]:
        """Yield the operations that are kept if this one is."""
        folders = {folder for folder, _, _ in operation.names}
        for earlier, other in enumerate(self._recording.operations[:index]):
            if operation.kind == "name" and other.kind == "name":
                is_same_folder = folders & {folder for folder, _, _ in other.names}
                if self._rule == "ordered" or is_same_folder:
                    yield earlier
            elif other.kind == "truncate" and operation.kind in ("write", "truncate"):
                yield from [earlier] if operation.inode == other.inode else []

    def _covered(self, index: int, inode: int) -> Iterator[int]:
        """Yield the operations that an fsync makes durable."""
        for earlier, other in enumerate(self._recording.operations[:index]):
            is_content = other.kind in ("write", "truncate") and other.inode == inode
            if is_content or inode in {folder for folder, _, _ in other.names}:
                yield earlier

    def _all_needs(self, index: int) -> set[int]:
        found: set[int] = set()
        waiting = [index]
        while waiting:
            new = self._needs[waiting.pop()] - found
            found |= new
            waiting += new
        return found
