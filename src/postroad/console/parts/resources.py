"""Lists, details and buttons derived from resources and actions (`postroad.operate`).

Filter, order and cursor are in the URL, so that a page can be shared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from nicegui import ui

from postroad.console.connections import Connections, Place
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
from postroad.console.parts.dialogs import Tone, action_button, ask, field, row_button, show_once
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
from postroad.console.view import BAD, GOOD, PageEnds, View
from postroad.operate import Action, Column, Filter, Parameter, Resource, Row
from postroad.operate.resource import MAX_COUNTED, MAX_SEARCHED, NUMBERS

# What shows a column of a row in place of `cell`, by the column's name.
Cells = Mapping[str, Callable[[Row], object]]
# The address of a row's page: its parts before the name of the row, or a function.
Target = Sequence[str] | Callable[[Row], str]
PAGE_ROWS = 50
PREVIEW_ROWS = 5
MAX_CODE_LENGTH = 24
ALIGNED = {"number": "num", "alarm": "num", "rate": "num", "bytes": "num", "duration": "num",
           "since": "num", "moment": "nowrap", "code": "nowrap", "id": "nowrap"}  # fmt: skip


def title_of(view: View, one: Column | Filter | Action) -> str:
    """Return a title in the user's language."""
    return one.title_ru if view.t.language == "ru" else one.title


def cell(view: View, column: Column, value: Any) -> Markup | str:
    """Show a value according to its column's kind."""
    t = view.t
    if value is None or value == "":
        return NOTHING
    if isinstance(value, list) and column.kind in NUMBERS:
        # A list only counts the rows that a detail page shows.
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


def _align(column: Column) -> str:
    return ALIGNED.get(column.kind, "wide" if column.name == "error" else "")


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
    to: Target = (),
    cells: Cells | None = None,
    names: Sequence[str] = (),
    more: Cells | None = None,
    advice: object = None,
    actions: Sequence[Action] = (),
    title: str = "",
    has_form: bool = True,
    sort: str = "",
    name: str = "",
    row_actions: Sequence[Action] = (),
    limit: int = PAGE_ROWS,
    fixed: dict[str, str] | None = None,
) -> None:
    """Show the filters of a resource and, live, the page of rows that the URL requests.

    `actions` can be run on all rows that match the filters, `row_actions` are buttons of each row
    that is offered them. The list is sorted by `sort`, descending, unless the address names a
    column. `name` tells a second list of the page apart: it begins the names of its parameters in
    the address, `fixed` are filters that the page sets itself. The other parameters are those of
    `resource_table`.
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
        # Lists that pages put together may be in the person's language.
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
        shown = resource_table(
            view,
            resource,
            found.rows,
            to=to,
            cells=cells,
            names=names,
            more=more,
            advice=advice,
            sorted_by=(sort, bool(is_down)),
            name=name,
        )
        return card(title, shown, pages) if title else joined((shown, pages))

    if row_actions:
        more = {**(more or {}), "": _row_buttons(view, row_actions)}
    form = await _filter_form(view, resource, given) if has_form else None
    if form is not None:
        ui.html(form, sanitize=False)
    bulk_buttons(view, given, actions)
    await view.live(listed)


def _row_buttons(view: View, actions: Sequence[Action]) -> Callable[[Row], object]:
    """Return what shows the buttons of a row, which ask only where it is needed."""

    async def act(action: Action, identity: str) -> None:
        async def read() -> Row:
            return await view.place_of(action.resource).run(action.resource.one, identity)

        if action.is_danger or any(one.is_required for one in action.parameters[1:]):
            await ask_action(view, action, await read(), {})
        else:
            await _act(view, action, identity, read)

    def show(row: Row) -> Markup:
        buttons = [
            row_button(view, title_of(view, one), one.verb, str(row[one.resource.row_name]))
            for one in actions
            if one.is_offered(row) and view.may(one.role)
        ]
        return element("div", buttons, class_="acts")

    for action in actions:
        view.on_row(action.verb, partial(act, action))
    return show


def _place(view: View, action: Action) -> Connections:
    """Return where an action runs: on the database, although its list may not be in a table."""
    place = view.place_of(action.resource)
    is_elsewhere = action.place == "connection" and isinstance(place, Place)
    return view.context.connections if is_elsewhere else place


async def _act(
    view: View,
    action: Action,
    target: str,
    row: Callable[[], Awaitable[Row]],
    more: Mapping[str, Any] | None = None,
    then: Callable[[Action], object] | None = None,
    secrets: list[str] | None = None,
) -> bool:
    """Run an action on a row as the signed-in account, with `more` arguments.

    `secrets` gets the results that are to be shown once.
    """

    async def do() -> Any:
        done = await _place(view, action).run(
            action.run_on, view.supplied, await row(), **(more or {})
        )
        if secrets is not None:
            named = set(action.secrets) - (more or {}).keys()
            secrets.extend(str(done[name]) for name in sorted(named) if done.get(name))
        if then is not None:
            then(action)
        return done.get("status") or done.get(action.result)

    name = f"{action.resource.component}.{action.verb}"
    recorded = {
        name: str(value) if isinstance(value, timedelta) else value
        for name, value in (more or {}).items()
        if name not in action.secrets
    }
    return await view.act(name, target, do, role=action.role, detail=recorded)


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
            typed = element("input", type="text", name=name, value=value)
            fields[name] = element("label", title, typed)
    kept = {**given, "sort": view.query("sort"), "order": view.query("order")}
    hidden = {name: value for name, value in kept.items() if name not in fields}
    return filter_form(t, view.request.url.path, fields.values(), hidden) if fields else None


def bulk_buttons(
    view: View, given: Mapping[str, str], actions: Sequence[Action]
) -> list[ui.button | None]:
    """Offer actions on all rows that match the filters."""
    actions = [action for action in actions if view.may(action.role)]
    if not actions:
        return []

    def button(action: Action) -> ui.button | None:
        label = view.t("common.all_matching", action=title_of(view, action))
        test = f"{action.verb}-all"
        opened = partial(ask_all, view, action, given)
        return action_button(view, label, opened, test=test, is_danger=action.is_danger)

    with ui.element("div").classes("row"):
        return [button(action) for action in actions]


async def ask_all(view: View, action: Action, given: Mapping[str, str]) -> None:
    """Show how many rows match, ask for the parameters of an action, and run it on all of them."""
    t, resource, title = view.t, action.resource, title_of(view, action)
    connections = view.place_of(resource)
    found = await connections.run(resource.count, given, action.when)
    if not found:
        view.notify(t("common.nothing_found"))
        return
    count = number(found)
    if found >= MAX_COUNTED:
        count = t("common.more_than", count=count)
    first = await connections.run(resource.page, given, limit=PREVIEW_ROWS, when=action.when)
    # The row of another list that a filter names, such as a queue.
    named = [given[one.name] for one in resource.filters if one.of and given.get(one.name)]

    async def do(arguments: Mapping[str, Any]) -> bool:
        total = 0
        shown = ui.notification(t("common.changed", count=0), spinner=True, timeout=None)

        async def run() -> int:
            nonlocal total
            async with connections.lend() as connection:
                async for so_far in action.run_on_matching(
                    connection, view.supplied, given, **arguments
                ):
                    total = so_far["count"]
                    shown.message = t("common.changed", count=number(total))
            return total

        try:
            return await view.act(
                f"{resource.component}.{action.verb}",
                (named or [resource.plural])[0],
                run,
                role=action.role,
                detail={**given, **{name: str(v) for name, v in arguments.items() if v}},
                describe=lambda total: (t("common.changed", count=number(total)), GOOD),
            )
        finally:
            shown.dismiss()

    lines = [
        element(
            "li",
            element("span", row[resource.label_name], class_="mono"),
            " ",
            element("span", (row.get("error") or row.get("data") or "")[:100], class_="note"),
        )
        for row in first.rows
    ]
    question = t("common.sure_all", action=title, count=count)
    label = f"{title}: {count}"
    asked = [one for one in action.parameters[1:] if one.name not in given]
    listed = element("div", element("ul", lines), class_="preview")
    await _ask(view, action, title, question, do, asked, label=label, listed=listed)


async def _ask(
    view: View,
    action: Action,
    title: str,
    question: str,
    do: Callable[[Mapping[str, Any]], Awaitable[bool]],
    parameters: Sequence[Parameter],
    *,
    label: str = "",
    listed: Markup | None = None,
) -> None:
    """Ask before an action, and call `do` with the arguments.

    Those of the parameters are asked for that have a title and are not given by the row.
    """
    t, component = view.t, action.resource.component
    titles = {"reason": t("common.reason")}
    for one in parameters:
        if one.name not in action.columns and f"{component}.{one.name}" in t.entries:
            titles[one.name] = t(f"{component}.{one.name}")
    asked = [one for one in parameters if one.name in titles]
    offered = {
        name: [str(row[of.row_name]) for row in await view.place_of(of).run(of.all)]
        for name, of in action.offered.items()
    }
    fields = {}
    for one in asked:
        given: dict[str, Any] = {}
        if one.name in offered:
            given = {"kind": ui.select, "options": offered[one.name], "with_input": True}
        elif one.type in (timedelta, int, float):
            given = {"kind": ui.number}
        props = "maxlength=500"
        if one.name in action.secrets:
            props, given = f'{props} autocomplete="new-password"', {**given, "password": True}
        fields[one.name] = field(titles[one.name], props=props, **given)

    def argument(one: Parameter, value: Any) -> Any:
        if not value:
            return None
        if one.type in (int, float):
            return one.type(value)
        return timedelta(minutes=value) if one.type is timedelta else value

    async def submit(given: dict[str, Any]) -> bool:
        arguments = {one.name: argument(one, given[one.name]) for one in asked}
        missing = [titles[one.name] for one in asked if one.is_required and not arguments[one.name]]
        if missing:
            view.notify(t("common.needed", names=", ".join(missing)), BAD)
            return False
        return await do(arguments)

    note = f"{question} {t.entries.get(f'{component}.{action.verb}_note', '')}".strip()
    tone: Tone = "danger" if action.is_danger else "main"
    await ask(
        view, title, label or title, submit, note=note, content=listed, fields=fields, tone=tone
    )


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

    # Not from the cache, which may contain the name from before a change.
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
    """Show a timeline of states, which column `name` has; `tones` are those that are not good."""
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


async def ask_action(
    view: View,
    action: Action,
    row: Row,
    more: Mapping[str, Any],
    title: str = "",
    question: str = "",
    then: Callable[[Action], object] | None = None,
) -> None:
    """Ask whether to run an action on a row, with `more` arguments, and run it.

    The reason, required arguments that are not given, and others that the action names are asked
    for as well.
    """
    title = title or title_of(view, action)
    target = str(row[action.resource.label_name])
    needed = [
        one
        for one in action.parameters[1:]
        if one.name in ("reason", *action.asked, *action.secrets)
        or (one.is_required and one.name not in more)
    ]
    secrets: list[str] = []

    async def same() -> Row:
        return row

    async def do(asked: Mapping[str, Any]) -> bool:
        given = {**more, **{name: value for name, value in asked.items() if value}}
        return await _act(view, action, target, same, given, then, secrets)

    question = question or view.t("common.sure", action=title, target=target)
    await _ask(view, action, title, question, do, needed)
    if secrets:
        await show_once(view, title, secrets)


async def action_buttons(
    view: View,
    actions: Sequence[Action | tuple[Action, Mapping[str, Any], str]],
    row: Callable[[], Awaitable[Row]],
    question: str = "",
    then: Callable[[Action], object] | None = None,
) -> None:
    """Offer actions on one row while its state allows them, some with arguments and a label.

    `then` is called after an action, for example to leave the page of a deleted row.
    """

    def button(action: Action, more: Mapping[str, Any], label: str) -> ui.button | None:
        title = label or title_of(view, action)

        async def ask() -> None:
            await ask_action(view, action, await row(), more, title, question, then)

        chosen = [
            str(more[one.name]).lower()
            for one in action.parameters
            if one.choices and one.name in more
        ]
        test = "-".join([action.verb, *chosen])
        return action_button(view, title, ask, test=test, is_danger=action.is_danger)

    async def is_offered(action: Action) -> bool:
        return action.is_offered(await row())

    with ui.element("div").classes("row"):
        for one in actions:
            action, more, label = one if isinstance(one, tuple) else (one, {}, "")
            await view.offer(button(action, more, label), partial(is_offered, action))
