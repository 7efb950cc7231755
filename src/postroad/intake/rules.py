"""Which files of a server are wanted: ignored endings, include and exclude patterns, done-files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Rules"]


def _compiled(patterns: Sequence[str], is_case_sensitive: bool) -> re.Pattern[str] | None:
    if not patterns:
        return None
    flags = 0 if is_case_sensitive else re.IGNORECASE
    return re.compile("|".join(f"(?:{fnmatch.translate(one)})" for one in patterns), flags)


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of one server. One with a slash is about the path, others about the name."""

    include: tuple[re.Pattern[str] | None, re.Pattern[str] | None]
    exclude: tuple[re.Pattern[str] | None, re.Pattern[str] | None]
    done_suffix: bytes | None

    @classmethod
    def of(cls, server: dict[str, Any]) -> Rules:
        """Read the rules of a server's row."""
        sensitive = server["is_case_sensitive"]

        def pair(patterns: Sequence[str]) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
            return (
                _compiled([one for one in patterns if "/" not in one], sensitive),
                _compiled([one.lstrip("/") for one in patterns if "/" in one], sensitive),
            )

        suffix = server["done_suffix"]
        return cls(
            pair(server["include"]),
            pair([*server["exclude"], *server["ignore"]]),
            suffix.encode() if suffix else None,
        )

    def is_wanted(self, path: bytes) -> bool:
        """Tell whether a file of this path is to be imported."""
        return self._matches(self.include, path) and not self._matches(self.exclude, path)

    def done_for(self, path: bytes) -> bytes | None:
        """Return the path that a done-file speaks for; None for any other file."""
        if self.done_suffix and path.endswith(self.done_suffix):
            return path[: -len(self.done_suffix)]
        return None

    @staticmethod
    def _matches(
        patterns: tuple[re.Pattern[str] | None, re.Pattern[str] | None], path: bytes
    ) -> bool:
        text = path.decode("utf-8", "surrogateescape")
        by_name, by_path = patterns
        return bool(
            (by_name and by_name.match(text.rpartition("/")[2]))
            or (by_path and by_path.match(text))
        )
