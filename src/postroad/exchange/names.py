"""Ids of databases, clients, messages and replies, which are parts of paths."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=64)]


def is_id(text: str) -> bool:
    """Check whether a text is a valid id."""
    return _ID.fullmatch(text) is not None
