"""Which files of a server are imported: include, exclude and ignore patterns, done-files.

Patterns of half-written files (`ignore`) match in any case: `.TMP` is as temporary as `.tmp`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Rules"]

# Patterns of names, and of paths.
Patterns = tuple[re.Pattern[str] | None, re.Pattern[str] | None]


def _compiled(patterns: Sequence[str], is_case_sensitive: bool) -> re.Pattern[str] | None:
    if not patterns:
        return None
    flags = 0 if is_case_sensitive else re.IGNORECASE
    return re.compile("|".join(f"(?:{fnmatch.translate(one)})" for one in patterns), flags)


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of one server. One with a slash matches the path, others match the name."""

    include: Patterns
    exclude: Patterns
    ignore: Patterns
    done_suffix: bytes | None

    @classmethod
    def of(cls, server: dict[str, Any]) -> Rules:
        """Read the rules of a server's row."""
        sensitive: bool = server["is_case_sensitive"]

        def pair(patterns: Sequence[str], *, sensitive: bool = sensitive) -> Patterns:
            return (
                _compiled([one for one in patterns if "/" not in one], sensitive),
                _compiled([one.lstrip("/") for one in patterns if "/" in one], sensitive),
            )

        suffix = server["done_suffix"]
        return cls(
            pair(server["include"]),
            pair(server["exclude"]),
            pair(server["ignore"], sensitive=False),
            suffix.encode() if suffix else None,
        )

    def is_wanted(self, path: bytes) -> bool:
        """Return whether a file of this path is to be imported."""
        return self._matches(self.include, path) and not (
            self._matches(self.exclude, path) or self._matches(self.ignore, path)
        )

    def done_for(self, path: bytes) -> bytes | None:
        """Return the path that a done-file speaks for; None for any other file."""
        if self.done_suffix and path.endswith(self.done_suffix):
            return path[: -len(self.done_suffix)]
        return None

    @staticmethod
    def _matches(patterns: Patterns, path: bytes) -> bool:
        text = path.decode("utf-8", "surrogateescape")
        by_name, by_path = patterns
        return bool(
            (by_name and by_name.match(text.rpartition("/")[2]))
            or (by_path and by_path.match(text))
        )
