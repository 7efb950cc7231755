"""One page of a list as an HTTP answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from postroad.web.cursors import encode_cursor

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page, and the cursor of the next one; none on the last."""

    items: list[Item]
    cursor: str | None = None


def page_of(rows: Sequence[Item], limit: int, key: Callable[[Item], tuple[Any, ...]]) -> Page[Item]:
    """Create a page from up to `limit + 1` rows: an extra row means that there is a next page."""
    items = list(rows[:limit])
    more = len(rows) > limit
    return Page(items=items, cursor=encode_cursor(*key(items[-1])) if more and items else None)
