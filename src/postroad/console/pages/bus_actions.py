"""Buttons for queues and messages; each asks first and is recorded in the audit log."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from nicegui import ui

from postroad.bus import BusError, Queue, WrongPayload, browse, operations
from postroad.bus import payload as payloads
from postroad.bus.browse import Selection
from postroad.bus.resources import EDIT_DEAD
from postroad.console.markup import Markup, element, number
from postroad.console.parts.dialogs import Tone, action_button, ask, field
from postroad.console.view import BAD, GOOD, View

# A selection is counted up to this many messages; beyond it the dialog shows "more than".
MAX_COUNTED = 100_000
PREVIEW_ROWS = 5


def post_button(view: View, queue: str | None) -> None:
    """Offer to post a message, to this queue or to one that is chosen."""
    t = view.t

    async def open_form() -> None:
        queues = {one.queue: one for one in await view.context.bus.queues()}
        if not queues:
            view.notify(t("bus.no_queue"))
            return
        fields: dict[str, Any] = {}

        def fill() -> None:
            chosen = queue or next(iter(queues))
            listed: dict[str, Any] = {"options": list(queues), "value": chosen, "with_input": True}
            fields["queue"] = field(ui.select, t("bus.queue"), "post-queue", **listed)
            fields["data"] = field(ui.textarea, t("bus.data"), "post-data", value="{}")
            title, example = t("bus.properties"), '{"STATE": "DONE"}'
            fields["properties"] = field(ui.input, title, "post-properties", placeholder=example)

        async def submit() -> bool:
            chosen = queues[str(fields["queue"].value)]
            return await _post(
                view, chosen, str(fields["data"].value), str(fields["properties"].value or "")
            )

        await ask(view, t("bus.post"), t("bus.post"), submit, fill=fill, test="post-send")

    action_button(view, t("bus.post"), open_form, test="post", is_main=True)


async def _post(view: View, queue: Queue, text: str, properties: str) -> bool:
    try:
        data = payloads.parse(payloads.of_queue(queue.queue, queue.payload), text)
        given = json.loads(properties) if properties.strip() else None
        if given is not None and not isinstance(given, dict):
            raise WrongPayload("properties must map names to texts", hint='{"STATE": "DONE"}')
    except (BusError, ValueError) as wrong:
        view.notify(view.explain(wrong), BAD)
        return False
    return await view.act(
        "bus.post", queue.queue, lambda: view.context.bus.post(queue.queue, data, None, given)
    )


def bulk_button(view: View, verb: operations.Verb, selection: Selection) -> None:
    """Offer to redrive, move or purge every message of a selection, after showing what matches."""
    t, bus = view.t, view.context.bus

    def progressed(total: int) -> str:
        return t("bus.progress", count=number(total))

    async def do(destination: str | None) -> bool:
        progress = ui.notification(progressed(0), spinner=True, timeout=None, position="top")

        async def run() -> int:
            total = 0
            async for total in operations.on_matching(bus, verb, selection, destination):
                progress.message = progressed(total)
            return total

        try:
            return await view.act(
                f"bus.{verb}",
                selection.queue,
                run,
                detail={**asdict(selection), "destination": destination},
                describe=lambda total: (progressed(total), GOOD),
            )
        finally:
            progress.dismiss()

    async def open_dialog() -> None:
        count, is_complete = await _count(view, selection)
        if count == 0:
            view.notify(t("common.nothing_found"))
            return
        shown = number(count) if is_complete else t("common.more_than", count=number(count))
        given = {**asdict(selection), "state": t.state(selection.state), "count": shown}
        what = t("bus.bulk_search" if selection.search else "bus.bulk_all", **given)
        text = f"{what} {t(f'bus.{verb}_question')}"
        label, preview = t(f"bus.{verb}_count", count=shown), await _preview(view, selection)
        await _ask(view, verb, label, selection.queue, text, do, preview)

    action_button(view, t(f"bus.{verb}"), open_dialog, test=verb, is_danger=verb == "purge")


async def _count(view: View, selection: Selection) -> tuple[int, bool]:
    """Count the messages of a selection; return also whether all were counted."""
    count = 0
    async for iids in browse.matching(view.context.bus, selection, 10_000):
        count += len(iids)
        if count >= MAX_COUNTED:
            return count, False
    return count, True


async def _preview(view: View, selection: Selection) -> Markup:
    """Show the first messages that match."""
    page = await browse.browse(
        view.context.bus,
        selection.queue,
        selection.consumer,
        selection.state,
        amount=PREVIEW_ROWS,
        search=selection.search,
    )
    lines = [
        element(
            "li",
            element("span", one.iid, class_="mono"),
            " ",
            element("span", (one.error or one.data or "")[:100], class_="note"),
        )
        for one in page.messages
    ]
    return element("ul", lines)


async def _ask(
    view: View,
    verb: str,
    label: str,
    queue: str,
    text: str,
    do: Callable[[str | None], Awaitable[bool]],
    preview: Markup | None = None,
) -> None:
    """Ask before an action on messages of a queue; a move needs its destination."""
    t, fields = view.t, dict[str, ui.select]()
    destinations: list[str] = []
    if verb == "move":
        listed = await view.context.bus.queues()
        payload = next((one.payload for one in listed if one.queue == queue), "")
        same = [one.queue for one in listed if one.payload == payload]
        destinations = [name for name in same if name != queue]
        if not destinations:
            view.notify(t("bus.no_destination"))
            return

    def fill() -> None:
        ui.label(text)
        if preview is not None:
            ui.html(preview, sanitize=False).classes("preview")
        if destinations:
            listed: dict[str, Any] = {
                "options": destinations,
                "value": destinations[0],
                "with_input": True,
            }
            fields["destination"] = field(ui.select, t("bus.destination"), "destination", **listed)

    async def submit() -> bool:
        return await do(str(fields["destination"].value) if fields else None)

    tone: Tone = "main" if verb == "redrive" else "danger"
    is_move = verb == "move"
    await ask(view, t(f"bus.{verb}"), label, submit, fill=fill, tone=tone, has_fields=is_move)


async def message_buttons(view: View, queue: str, iid: str) -> None:
    """Offer to redrive, move or remove one message, as its state allows."""
    t, bus = view.t, view.context.bus

    async def copies() -> list[tuple[str, browse.State]]:
        found = await view.cached(("bus.message", iid), lambda: browse.find(bus, iid))
        return [(consumer, state) for consumer, state, _ in found]

    async def redrive(_: str | None) -> bool:
        return await view.act("bus.redrive", iid, lambda: bus.redrive(queue, None, iid))

    async def take(_: str | None) -> bool:
        async def run() -> str:
            return "taken" if await bus.take(iid) is not None else "gone"

        return await view.act("bus.take", iid, run)

    async def move(destination: str | None) -> bool:
        found = await copies()
        if not found or destination is None:
            view.notify(t("bus.message_gone"))
            return False
        consumer, state = found[0]
        return await view.act(
            "bus.move",
            iid,
            lambda: operations.move(bus, queue, destination, consumer, state, iid),
            detail={"consumer": consumer, "state": state, "destination": destination},
        )

    async def is_there() -> bool:
        return bool(await copies())

    async def is_dead() -> bool:
        return any(state == "dead" for _, state in await copies())

    async def button(
        verb: str,
        text: str,
        do: Callable[[str | None], Awaitable[bool]],
        is_offered: Callable[[], Awaitable[bool]],
    ) -> None:
        title = t(f"bus.{verb}")
        opened = partial(_ask, view, verb, title, queue, text, do)
        pressed = action_button(view, title, opened, test=verb, is_danger=verb == "take")
        await view.offer(pressed, is_offered)

    async def edit() -> None:
        found = [one for _, state, one in await browse.find(bus, iid) if state == "dead"]
        if not found or len((found[0].data or "").encode()) < (found[0].size or 0):
            view.notify(t("bus.not_editable"))
            return
        shown = {"data": found[0].data or "", "properties": json.dumps(found[0].properties)}
        fields: dict[str, Any] = {}

        def fill() -> None:
            ui.label(t("bus.edit_note"))
            for name, value in shown.items():
                fields[name] = field(ui.textarea, t(f"bus.{name}"), f"edit-{name}", value=value)

        async def submit() -> bool:
            given = {name: str(one.value or "") for name, one in fields.items()}
            changed = {name: value for name, value in given.items() if value != shown[name]}
            run = partial(view.context.connections.run, EDIT_DEAD.run, view.by, iid=iid, **changed)
            return await view.act("bus.edit", iid, run, detail={"changed": list(changed)})

        await ask(view, t("bus.edit"), t("bus.edit"), submit, fill=fill, test="edit-send")

    with ui.element("div").classes("row"):
        await button("redrive", f"{iid}. {t('bus.redrive_question')}", redrive, is_dead)
        pressed = action_button(view, t("bus.edit"), edit, test="edit")
        await view.offer(pressed, is_dead)
        await button("move", f"{iid}. {t('bus.move_question')}", move, is_there)
        await button("take", t("bus.take_question", iid=iid), take, is_there)
