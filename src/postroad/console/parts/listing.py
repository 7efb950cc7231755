"""One page of a list that may be of any length: loaded by its key, never by its offset.

The filter and the place are in the address, so that a page can be sent to somebody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nicegui import ui

from postroad.console.catalogue import Texts
from postroad.console.markup import Markup, address, joined
from postroad.console.parts.lists import filter_form, gone, nothing_found, pager
from postroad.console.view import View

PAGE_ROWS = 50

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FilteredList(Generic[Row]):
    """A list of any length with its filter: where it is, what may be chosen, how it is read.

    `load` gets the filter by its names in the address, the key before which to begin, and how many
    rows to bring.
    """

    place: Sequence[str]
    choices: Mapping[str, tuple[str, Mapping[str, str]]]
    load: Callable[[Mapping[str, str | None], int | None, int], Awaitable[Sequence[Row]]]
    draw: Callable[[Sequence[Row]], Markup]
    key: Callable[[Row], object]
    # What the search is for; None where there is none.
    hint: str | None = None


async def show_list(view: View, shown: FilteredList[Row]) -> None:
    """Show the filter and, live, the page of the list that the address asks for."""
    names = [*shown.choices, *(("search",) if shown.hint is not None else ())]
    given = {name: view.query(name) for name in names}

    async def listed() -> Markup:
        return await listing(
            view,
            shown.place,
            given,
            lambda before, limit: shown.load(
                {name: value or None for name, value in given.items()}, before, limit
            ),
            shown.draw,
            shown.key,
        )

    form = filter_form(
        view.t,
        address(*shown.place),
        search=given.get("search"),
        hint=shown.hint or "",
        choices=shown.choices,
        chosen=given,
    )
    ui.html(form, sanitize=False)
    await view.live(listed)


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
    found = await view.cached((*place, *kept.values(), before), lambda: load(before, PAGE_ROWS + 1))
    page = found[:PAGE_ROWS]
    has_more = len(found) > PAGE_ROWS
    following = address(*place, **kept, before=key(page[-1])) if has_more else None
    first = address(*place, **kept) if before is not None else None
    is_filtered = any(kept.values()) or before is not None
    shown = nothing_found(view.t, address(*place)) if is_filtered and not page else draw(page)
    return joined((shown, pager(view.t, first, following)))


def choice(
    t: Texts, title: str, values: Iterable[str], word: Callable[[str], str] = str
) -> tuple[str, Mapping[str, str]]:
    """Let a filter choose one of these values, or all."""
    return title, {"": t("common.all"), **{value: word(value) for value in values}}


def say_gone(title: str) -> None:
    """Fill a page about something that is not there, or not any more."""
    ui.html(gone(title), sanitize=False)
