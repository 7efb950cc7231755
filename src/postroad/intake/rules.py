"""Selects the files to import: include, exclude and ignore patterns, done-files.

Patterns of incomplete files (`ignore`) ignore case: `.TMP` matches like `.tmp`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

# One regular expression each for the patterns with and without a slash.
Patterns = tuple[re.Pattern[str], re.Pattern[str]]


def _compiled(patterns: Sequence[str], is_case_sensitive: bool) -> Patterns:
    """Compile patterns for paths and for names; without any, an expression that never matches."""
    flags = 0 if is_case_sensitive else re.IGNORECASE
    by_path = "|".join(fnmatch.translate(one.lstrip("/")) for one in patterns if "/" in one)
    by_name = "|".join(fnmatch.translate(one) for one in patterns if "/" not in one)
    return re.compile(by_path or "(?!)", flags), re.compile(by_name or "(?!)", flags)


class Rules:
    """The patterns of one server. One with a slash matches the path, others match the name."""

    def __init__(self, server: dict[str, Any]) -> None:
        is_case_sensitive: bool = server["is_case_sensitive"]
        self._include = _compiled(server["include"], is_case_sensitive)
        self._exclude = _compiled(server["exclude"], is_case_sensitive)
        self._ignore = _compiled(server["ignore"], is_case_sensitive=False)
        self._done_suffix = (server["done_suffix"] or "").encode()

    def is_wanted(self, path: bytes) -> bool:
        """Return whether a file of this path is to be imported."""
        text = path.decode("utf-8", "surrogateescape")
        name = text.rpartition("/")[2]
        included, *others = (
            bool(by_path.match(text) or by_name.match(name))
            for by_path, by_name in (self._include, self._exclude, self._ignore)
        )
        return included and not any(others)

    def done_for(self, path: bytes) -> bytes | None:
        """Return the path of the file that a done-file declares complete; None for other files."""
        if self._done_suffix and path.endswith(self._done_suffix):
            return path[: -len(self._done_suffix)]
        return None
