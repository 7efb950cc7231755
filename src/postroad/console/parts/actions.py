"""Buttons and dialogs of actions (`postroad.operate`): on one row, and on all that match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
from nicegui import ui

from postroad.console.connections import Connections, Place
from postroad.console.markup import Markup, element, number, pretty
from postroad.console.parts.dialogs import Tone, action_button, ask, field, row_button, show_once
from postroad.console.view import AWAY, BAD, GOOD, View
from postroad.errors import PostroadError
from postroad.operate import Action, Column, Filter, Parameter, Row
from postroad.operate.resource import MAX_COUNTED
from postroad.settings.values import parse_duration, shown_duration

PREVIEW_ROWS = 5


def title_of(view: View, one: Column | Filter | Action) -> str:
    """Return a title in the user's language."""
    return one.title_ru if view.t.language == "ru" else one.title


def row_buttons(view: View, actions: Sequence[Action]) -> Callable[[Row], object]:
    """Return a function that shows the buttons of a row; a dialog opens only if it is needed."""

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
    """Return where an action runs: on the database, even if its list is not in a table."""
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
    """Run an action on a row; `secrets` gets the results that are to be shown once."""

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
    # The row of another list that a filter refers to, such as a queue.
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
    row: Row | None = None,
    label: str = "",
    listed: Markup | None = None,
) -> None:
    """Ask before an action, and call `do` with the arguments.

    The dialog shows the parameters that have a title and are not given by the row. The fields of
    settings have their present values in the `row`.
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
        if row is not None and one.name in action.present:
            column = action.resource.column(action.present[one.name])
            given["value"] = _present(row[column.name])
            if column.kind == "json":
                given["kind"], props = ui.textarea, ""
            elif column.kind == "duration":
                given["kind"] = ui.input
        if one.name in action.secrets:
            props, given = f'{props} autocomplete="new-password"', {**given, "password": True}
        fields[one.name] = field(titles[one.name], props=props, **given)

    def argument(one: Parameter, value: Any) -> Any:
        if not value:
            return one.type() if one.name in action.present and not action.sets_all else None
        if one.type in (int, float):
            return one.type(value)
        if one.type is not timedelta:
            return value
        return parse_duration(value) if isinstance(value, str) else timedelta(minutes=value)

    async def submit(given: dict[str, Any]) -> bool:
        try:
            arguments = {one.name: argument(one, given[one.name]) for one in asked}
        except ValueError as wrong:
            view.notify(t("problem.kind_usage", text=wrong), BAD)
            return False
        missing = [
            titles[one.name] for one in asked if one.is_required and arguments[one.name] is None
        ]
        if missing:
            view.notify(t("common.needed", names=", ".join(missing)), BAD)
            return False
        return await do(arguments)

    note = f"{question} {t.entries.get(f'{component}.{action.verb}_note', '')}".strip()
    tone: Tone = "danger" if action.is_danger else "main"
    await ask(
        view, title, label or title, submit, note=note, content=listed, fields=fields, tone=tone
    )


def _present(value: Any) -> Any:
    """Return the value of a setting's field: a duration as it is parsed, an object as JSON."""
    if isinstance(value, timedelta):
        return shown_duration(value)
    return pretty(value) if isinstance(value, dict | bool) else value


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

    The dialog asks for the reason, for missing required arguments, and for those that the action
    lists.
    """
    title = title or title_of(view, action)
    target = str(row[action.resource.label_name])
    needed = [
        one
        for one in action.parameters[1:]
        if one.name in ("reason", *action.asked, *action.present, *action.secrets)
        or (one.is_required and one.name not in more)
    ]
    secrets: list[str] = []

    async def same() -> Row:
        return row

    async def do(asked: Mapping[str, Any]) -> bool:
        given = {**more, **{name: value for name, value in asked.items() if value is not None}}
        if action.counts and not await _is_sure(view, action, row, given, title):
            return False
        return await _act(view, action, target, same, given, then, secrets)

    question = question or view.t("common.sure", action=title, target=target)
    await _ask(view, action, title, question, do, needed, row=row)
    if secrets:
        await show_once(view, title, secrets)


async def _is_sure(
    view: View, action: Action, row: Row, given: Mapping[str, Any], title: str
) -> bool:
    try:
        found = await _place(view, action).run(
            action.run_on, {**view.supplied, "is_dry_run": True}, row, **given
        )
    except (PostroadError, psycopg.Error, *AWAY) as failure:
        view.notify(view.explain(failure), BAD)
        return False
    count = number(found[action.counts])
    question = view.t("common.sure_all", action=title, count=count)
    return await ask(view, title, f"{title}: {count}", note=question, test="sure")


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
