"""One page of a list that may be of any length: loaded by its key, never by its offset.

The filter and the place are in the address, so that a page can be sent to somebody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from nicegui import ui

from postroad.console.catalogue import Texts
from postroad.console.markup import Markup, address, joined
from postroad.console.parts.lists import gone, pager
from postroad.console.view import View

__all__ = ["PAGE_ROWS", "choice", "listing", "say_gone"]

PAGE_ROWS = 50

Row = TypeVar("Row")


async def listing(
    view: View,
    place: Sequence[str],
    kept: Mapping[str, str],
    load: Callable[[int | None, int], Awaitable[Sequence[Row]]],
    draw: Callable[[Sequence[Row]], Markup],
    key: Callable[[Row], object],
) -> Markup:
    """Draw the page that the address asks for, with the ways to the first and the next one.

    `load` gets the key before which to begin and how many rows to bring: one more than is shown
    tells whether there is a next page. `kept` is the filter, by its names in the address.
    """
    before = view.place("before")
    found = await view.look((*place, *kept.values(), before), lambda: load(before, PAGE_ROWS + 1))
    page = found[:PAGE_ROWS]
    has_more = len(found) > PAGE_ROWS
    following = address(*place, **kept, before=key(page[-1])) if has_more else None
    first = address(*place, **kept) if before is not None else None
    return joined((draw(page), pager(view.t, first, following)))


def choice(
    t: Texts, title: str, values: Iterable[str], word: Callable[[str], str] = str
) -> tuple[str, Mapping[str, str]]:
    """Let a filter choose one of these values, or all."""
    return title, {"": t("common.all"), **{value: word(value) for value in values}}


def say_gone(title: str) -> None:
    """Fill a page about something that is not there, or not any more."""
    ui.html(gone(title), sanitize=False)
