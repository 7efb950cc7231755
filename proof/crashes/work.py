"""What a killed program and the check after it share: databases, a folder, and facts."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Place", "Work"]


@dataclass
class Place:
    """Where one scenario happens once. Servers beside PostgreSQL are closed with the stack."""

    databases: tuple[str, ...]
    folder: Path
    stack: ExitStack
    # For the program; JSON.
    facts: dict[str, Any] = field(default_factory=dict)
    # For the check.
    servers: dict[str, Any] = field(default_factory=dict)

    @property
    def dsn(self) -> str:
        """The database of a scenario that needs one."""
        return self.databases[0]

    def work(self, through: tuple[str, ...]) -> str:
        """Return the orders of a program that reaches the databases through a proxy."""
        return json.dumps([through, self.databases, str(self.folder), self.facts])


@dataclass(frozen=True)
class Work:
    """The orders of a program.

    Only messages through `databases` are counted and killed at. What the program asks to find out
    whether it has finished goes to `watched`, the same databases past the proxy.
    """

    databases: tuple[str, ...]
    watched: tuple[str, ...]
    folder: Path
    facts: dict[str, Any]

    @classmethod
    def read(cls, text: str) -> Work:
        """Read orders."""
        databases, watched, folder, facts = json.loads(text)
        return cls(tuple(databases), tuple(watched), Path(folder), facts)

    @property
    def dsn(self) -> str:
        """The database of a program that needs one."""
        return self.databases[0]
