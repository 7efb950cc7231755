"""Tables that fit on a page: searched and sorted by what their cells show, as the address says.

Lists that may be of any length are not sorted here but read by their key: see `resources.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from postroad.console.markup import NOTHING, Column, Markup, element, table
from postroad.console.parts.lists import filter_form, nothing_found
from postroad.console.view import View

_RANK = re.compile(r'data-rank="([^"]*)"')
_MOMENT = re.compile(r'datetime="([^"]*)"')


def ranked(shown: object, rank: float | None) -> Markup:
    """Show something that is sorted by a number which cannot be read from it, such as an age."""
    return element("span", shown, data_rank=rank)


def search_form(view: View, hint: str = "") -> Markup:
    """Make the search over the tables of a page; the order stays."""
    kept = {name: view.query(name) for name in ("sort", "order", "show")}
    return filter_form(
        view.t, view.request.url.path, search=view.query("search"), hidden=kept, hint=hint
    )


def sortable(
    view: View,
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    label: str,
    empty: object,
    is_searched: bool = True,
) -> Markup:
    """Show the rows that the search finds, sorted by the chosen column; without one as given.

    `name` tells the tables of a page apart.
    """
    listed = list(rows)
    search = view.query("search").lower() if is_searched else ""
    found = [row for row in listed if search in " ".join(map(_text, row)).lower()]
    chosen, is_up = view.query("sort"), view.query("order") != "down"
    heads = []
    for index, column in enumerate(columns):
        key = f"{name}-{index}"
        is_this = key == chosen
        if is_this:
            found = _sorted(found, index, is_up=is_up)
        order = ("ascending" if is_up else "descending") if is_this else None
        target = view.here(sort=key, order="down" if is_this and is_up else "")
        heads.append(replace(column, sort=target if column.title else None, order=order))
    if listed and not found:
        return nothing_found(view.t, view.here(search=""))
    return table(heads, found, label=label, empty=empty)


def _sorted(rows: Sequence[Sequence[object]], index: int, *, is_up: bool) -> list[Sequence[object]]:
    filled = [row for row in rows if _text(row[index]).strip() not in ("", NOTHING)]
    filled.sort(key=lambda row: _key(row[index]), reverse=not is_up)
    # Where there is nothing, there is nothing to sort by: last, whichever way.
    return filled + [row for row in rows if row not in filled]


def _text(cell: object) -> str:
    return cell.striptags() if isinstance(cell, Markup) else str(cell)


def _key(cell: object) -> tuple[int, float, str]:
    """Rank a cell: numbers by their value, moments by time, words by letters."""
    if isinstance(cell, Markup):
        if rank := _RANK.search(cell):
            return 0, float(rank[1]), ""
        if moment := _MOMENT.search(cell):
            return 1, 0.0, moment[1]
    text = _text(cell).strip()
    try:
        return 0, float(text.replace("\u202f", "").removeprefix("≈").strip()), ""
    except ValueError:
        return 1, 0.0, text.casefold()
