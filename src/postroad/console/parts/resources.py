"""Lists, details and buttons derived from resources and actions (`postroad.operate`).

Filter, order and cursor are in the URL, so that a page can be shared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from nicegui import ui

from postroad.console.frame import PAGES, page, pages_above
from postroad.console.markup import (
    NOTHING,
    Markup,
    address,
    badge,
    card,
    element,
    facts,
    joined,
    link,
    moment,
    number,
    pretty,
    rate,
)
from postroad.console.parts.actions import bulk_buttons, row_buttons, title_of
from postroad.console.parts.lists import (
    choice_field,
    crumbs,
    empty,
    filter_form,
    gone,
    nothing_found,
    pager,
    search_field,
    timeline,
)
from postroad.console.view import PageEnds, View
from postroad.operate import Action, Column, Resource, Row
from postroad.operate.resource import MAX_SEARCHED, NUMBERS

# Functions that show a column of a row in place of `cell`, by the column's name.
Cells = Mapping[str, Callable[[Row], object]]
# The address of a row's page: its parts before the name of the row, or a function.
Target = Sequence[str] | Callable[[Row], str]
PAGE_ROWS = 50
MAX_CODE_LENGTH = 24
ALIGNED = {"number": "num", "alarm": "num", "rate": "num", "bytes": "num", "duration": "num",
           "since": "num", "moment": "nowrap", "code": "nowrap", "id": "nowrap"}  # fmt: skip


def cell(view: View, column: Column, value: Any) -> Markup | str:
    """Show a value according to its column's kind."""
    t = view.t
    if value is None or value == "":
        return NOTHING
    if isinstance(value, list) and column.kind in NUMBERS:
        # A list shows only the number of the rows that a detail page lists.
        value = len(value)
    match column.kind:
        case "number":
            return number(value)
        case "alarm":
            return badge(number(value), "bad") if value else number(value)
        case "rate":
            return rate(value)
        case "bytes":
            return t.size(value)
        case "boolean":
            return t("common.yes" if value else "common.no")
        case "moment":
            return moment(_moment(value))
        case "since":
            return t.age(datetime.now(UTC) - _moment(value))
        case "duration":
            return t.age(value if isinstance(value, timedelta) else timedelta(seconds=value))
        case "word":
            return t.state(str(value).lower(), column.name)
        case "state":
            return badge(t.state(str(value).lower(), column.name), str(value).lower())
        case "list":
            return ", ".join(map(str, value)) or NOTHING
        case "json":
            return element("pre", pretty(value), class_="data")
        case "code":
            return element("span", value, class_="mono")
    return str(value)


def _moment(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def link_cell(name: str, *place: str, by: str = "", class_: str = "mono") -> Cells:
    """Show a column as a link to a page below `place`; `by` is the column that names the page."""

    def show(row: Row) -> Markup | str:
        text = row[name]
        return link(text, address(*place, row[by or name]), class_=class_) if text else NOTHING

    return {name: show}


def message_cell(name: str) -> Cells:
    """Show the iid in a column as a link to the message."""
    return link_cell(name, "bus", "messages")


def _align(column: Column) -> str:
    return "wide" if column.name in ("error", "selector") else ALIGNED.get(column.kind, "")


def _shown(view: View, column: Column, row: Row, cells: Cells) -> object:
    special = cells.get(column.name)
    return special(row) if special else cell(view, column, row[column.name])


def part_table(
    view: View,
    columns: Sequence[Column],
    rows: Sequence[Row],
    none: object = "",
    *,
    cells: Cells | None = None,
    more: Cells | None = None,
    heads: Sequence[Markup] = (),
    label: str = "",
) -> Markup:
    """Show rows that belong to a detail; the parameters are those of `resource_table`."""
    if not rows:
        return element("div", none, class_="empty")
    special, further = cells or {}, more or {}
    first = heads or [_head(title_of(view, one), _align(one)) for one in columns]
    heads = [*first, *(_head(title, "minor" if title else "") for title in further)]
    body = []
    for row in rows:
        shown = [
            _cell(title_of(view, one), _align(one), _shown(view, one, row, special))
            for one in columns
        ]
        shown += [
            _cell(title, "minor" if title else "", show(row)) for title, show in further.items()
        ]
        body.append(element("tr", shown))
    content = element("thead", element("tr", heads)), element("tbody", body)
    return element("div", element("table", *content), class_="table", role="region",
                   aria_label=label, tabindex="0")  # fmt: skip


def _head(title: object, kind: str, order: str | None = None) -> Markup:
    return element("th", title, scope="col", class_=kind or None, aria_sort=order)


def _cell(title: str, kind: str, shown: object) -> Markup:
    # On a phone, where a row is a list of names and values, an empty value takes no space.
    kind = f"{kind} nothing".strip() if shown in (NOTHING, "") else kind
    return element("td", shown, class_=kind or None, data_label=title)


def resource_table(
    view: View,
    resource: Resource,
    rows: Sequence[Row],
    *,
    to: Target = (),
    none: object = None,
    advice: object = None,
    cells: Cells | None = None,
    names: Sequence[str] = (),
    more: Cells | None = None,
    sorted_by: tuple[str, bool] | None = None,
    name: str = "",
) -> Markup:
    """Show rows; `to` is the page of a row, `cells` replaces those of some columns.

    `names` are the columns to show, by default the listed ones; `more` are further ones with
    titles, which only a wide window shows unless they are buttons without a title. Without rows
    `none` is shown, by default the text of the resource with the `advice`. `sorted_by` is the
    column of the order and whether it is descending, `name` that of `show_resource`.
    """
    columns = [resource.column(one) for one in names] or resource.listed
    chosen, is_down = sorted_by or ("", False)
    heads = []
    for column in columns:
        title: object = title_of(view, column)
        order = ("descending" if is_down else "ascending") if column.name == chosen else None
        if sorted_by is not None and column.name in resource.sort_keys:
            mark = {"ascending": " ↑", "descending": " ↓"}.get(order or "", "")
            wanted = "" if order == "descending" else "down"
            target = view.here(**{f"{name}sort": column.name, f"{name}order": wanted})
            title = link(f"{title}{mark}", target, class_="sort")
        heads.append(_head(title, _align(column), order))
    linked = resource.label or columns[0].name

    def row_link(row: Row) -> Markup:
        text = str(row[linked])
        shown = text if len(text) <= MAX_CODE_LENGTH else f"{text[:MAX_CODE_LENGTH]}…"
        href = to(row) if callable(to) else address(*to, row[resource.row_name])
        return link(shown, href, class_="mono", title=text)

    text, entries = f"empty.{resource.name}", view.t.entries
    none = none or empty(entries.get(text, ""), advice or entries.get(f"{text}_advice"))
    cells = {**({linked: row_link} if to else {}), **(cells or {})}
    return part_table(
        view, columns, rows, none, cells=cells, more=more, heads=heads, label=resource.plural
    )


def list_page(resource: Resource, **shown: Any) -> None:
    """Declare the page of a list, at the path and with the title that its name gives.

    Its rows link to their pages if there are any; `shown` are the arguments of `show_resource`.
    """
    place = resource.name.split(".")
    path = "/" + "/".join(place)

    async def build(view: View) -> None:
        is_linked = any(one.path.startswith(f"{path}/{{") for one in PAGES)
        await show_resource(view, resource, to=place if is_linked else (), **shown)

    page(path, resource.component, resource.name)(build)


async def show_resource(
    view: View,
    resource: Resource,
    *,
    actions: Sequence[Action] = (),
    title: str = "",
    has_form: bool = True,
    sort: str = "",
    name: str = "",
    row_actions: Sequence[Action] = (),
    limit: int = PAGE_ROWS,
    fixed: dict[str, str] | None = None,
    **shown: Any,
) -> None:
    """Show the filters of a resource and, live, the page of rows that the URL requests.

    `actions` can be run on all rows that match the filters, `row_actions` are buttons of each row
    that is offered them. The list is sorted by `sort`, descending, unless the address names a
    column. `name` distinguishes a second list on the page: it is the prefix of its parameters in
    the address. `fixed` are filters that the page sets, `shown` are arguments of `resource_table`.
    """
    set_by_page = fixed or {}
    given = {one.name: view.query(name + one.name) for one in resource.filters} | set_by_page
    after, is_down = view.query(f"{name}after"), True if sort else None
    if (chosen := view.query(f"{name}sort")) in resource.sort_keys:
        sort, is_down = chosen, view.query(f"{name}order") == "down"
    read = partial(
        view.place_of(resource).run,
        resource.page,
        given,
        sort=sort or None,
        is_descending=is_down,
        after=after or None,
        limit=limit,
    )

    async def listed() -> Markup:
        # Lists that pages build may be in the user's language.
        language = "" if isinstance(resource.source, str) else view.t.language
        key = (resource.name, language, *given.values(), sort, is_down, after)
        found = await view.cached(key, read)
        following = view.here(**{f"{name}after": found.cursor}) if found.cursor else None
        goes_on = view.t("common.search_goes_on", count=number(MAX_SEARCHED))
        note = goes_on if found.is_partial else ""
        pages = pager(view.t, view.here() if after else None, following, note)
        is_filtered = any(given[each] for each in given.keys() - set_by_page.keys())
        if not found.rows and (after or is_filtered):
            return joined((nothing_found(view.t, view.request.url.path), pages))
        order = (sort, bool(is_down))
        table = resource_table(view, resource, found.rows, sorted_by=order, name=name, **shown)
        return card(title, table, pages) if title else joined((table, pages))

    if row_actions:
        shown["more"] = {**shown.get("more", {}), "": row_buttons(view, row_actions)}
    form = await _filter_form(view, resource, given) if has_form else None
    if form is not None:
        ui.html(form, sanitize=False)
    bulk_buttons(view, given, actions)
    await view.live(listed)


async def _filter_form(view: View, resource: Resource, given: Mapping[str, str]) -> Markup | None:
    t, fields = view.t, dict[str, Markup]()
    has_search = any(one.is_search for one in resource.filters)
    for one in resource.filters:
        name, title, value = one.name, title_of(view, one), given[one.name]
        if one.is_search:
            hint = (t.language == "en" and one.help) or title
            fields = {name: search_field(t, value, hint), **fields}
        elif one.is_flag:
            words = {"": t("common.all"), "yes": t("common.yes")}
            fields[name] = choice_field(name, title, words, value)
        elif one.choices or one.offered or one.of:
            read = partial(view.place_of(resource).run, resource.offered, one)
            values = await view.cached((resource.name, name), read, 10)
            words = {} if one.default else {"": t("common.all")}
            words |= {each: t.state(each.lower(), name) if one.choices else each for each in values}
            fields[name] = choice_field(name, title, words, value)
        elif one.is_typed or not has_search:
            # In addition to a search, such a filter is set by links from other pages, and kept.
            example = one.help.partition(": ")[2].rstrip(".") or None
            typed = element("input", type="text", name=name, value=value, placeholder=example)
            fields[name] = element("label", title, typed)
    kept = {**given, "sort": view.query("sort"), "order": view.query("order")}
    hidden = {name: value for name, value in kept.items() if name not in fields}
    return filter_form(t, view.request.url.path, fields.values(), hidden) if fields else None


async def open_row(
    view: View, resource: Resource, identity: object
) -> Callable[[], Awaitable[Row]]:
    """Begin the page of a row with its breadcrumbs, or with a notice that it does not exist.

    Returns a function that reads the current row. Raises PageEnds if there is none.
    """

    async def read() -> Row | None:
        try:
            return await view.place_of(resource).run(resource.one, identity)
        except resource.missing:
            return None

    # Not from the cache, which may contain an outdated name.
    first = await read()
    label = str(first[resource.label_name]) if first else str(identity)
    ui.html(crumbs(*pages_above(view), (label, None)), sanitize=False)
    if first is None:
        ui.html(gone(view.t(f"gone.{resource.name}")), sanitize=False)
        raise PageEnds

    async def now() -> Row:
        return await view.cached((resource.name, str(identity)), read, 1) or first

    return now


def detail_facts(
    view: View, resource: Resource, row: Row, title: str, cells: Cells | None = None
) -> Markup:
    """Show the columns of one row as a card of names and values."""
    shown = facts(
        (title_of(view, column), _shown(view, column, row, cells or {}))
        for column in resource.columns
        if column.name in row and column.name != resource.key and not column.replaced_by
    )
    return card(title, shown)


def history_of(view: View, steps: Sequence[Row], name: str, tones: Mapping[str, str]) -> Markup:
    """Show the timeline of states in column `name`; `tones` are those of problem states."""
    shown = [
        (
            view.t.state(step[name].lower(), name),
            moment(_moment(step["at"])) if step["at"] else NOTHING,
            " · ".join(filter(None, (step.get("actor"), step["note"]))),
            tones.get(step[name].lower(), "good"),
        )
        for step in steps
    ]
    return timeline(view.t, shown)
