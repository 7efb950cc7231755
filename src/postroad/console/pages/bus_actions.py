"""Buttons for queues and messages; each asks first and is recorded in the audit log."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from nicegui import ui

from postroad.bus import BusError, Queue, WrongPayload, browse
from postroad.bus import payload as payloads
from postroad.bus.browse import BrowsedMessage, State
from postroad.bus.resources import EDIT_DEAD, MOVE_MESSAGES, REDRIVE_MESSAGES, TAKE
from postroad.console.parts.actions import action_buttons
from postroad.console.parts.dialogs import action_button, ask, field
from postroad.console.view import BAD, View
from postroad.operate import Row


def post_button(view: View, queue: str | None) -> None:
    """Offer to post a message to this queue, or to one that the user chooses."""
    t = view.t

    async def open_form() -> None:
        queues = {one.queue: one for one in await view.context.bus.queues()}
        if not queues:
            view.notify(t("empty.bus.consumer_figures"))
            return
        listed, chosen = list(queues), queue or next(iter(queues))
        example = '{"STATE": "DONE"}'
        fields = {
            "queue": field(
                t("bus.queue"), ui.select, options=listed, value=chosen, with_input=True
            ),
            "data": field(t("bus.data"), ui.textarea, value="{}"),
            "properties": field(t("bus.properties"), placeholder=example),
        }

        async def submit(given: dict[str, Any]) -> bool:
            chosen, properties = queues[str(given["queue"])], str(given["properties"] or "")
            return await _post(view, chosen, str(given["data"]), properties)

        await ask(view, t("bus.post"), t("bus.post"), submit, fields=fields, test="post-send")

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


async def copies_of(view: View, iid: str) -> list[tuple[str, State, BrowsedMessage]]:
    """Return every copy of a message, shared by all pages."""
    return await view.cached(("bus.message", iid), lambda: browse.find(view.context.bus, iid))


async def message_buttons(view: View, queue: str, iid: str) -> None:
    """Offer to redrive, edit, move or remove one message, as its state allows."""
    t = view.t

    async def copy() -> Row:
        """Return the copy that the buttons apply to: a dead one, or the first."""
        copies = sorted(await copies_of(view, iid), key=lambda one: one[1] != "dead")
        consumer, state, _ = copies[0] if copies else ("", "gone", None)
        return {"iid": iid, "queue": queue, "consumer": consumer, "state": state}

    async def is_dead() -> bool:
        return REDRIVE_MESSAGES.is_offered(await copy())

    async def edit() -> None:
        found = [
            one for _, state, one in await browse.find(view.context.bus, iid) if state == "dead"
        ]
        if not found or len((found[0].data or "").encode()) < (found[0].size or 0):
            view.notify(t("bus.not_editable"))
            return
        shown = {"data": found[0].data or "", "properties": json.dumps(found[0].properties)}
        fields = {
            name: field(t(f"bus.{name}"), ui.textarea, value=value) for name, value in shown.items()
        }

        async def submit(given: dict[str, Any]) -> bool:
            texts = {name: str(value or "") for name, value in given.items()}
            changed = {name: text for name, text in texts.items() if text != shown[name]}
            run = partial(
                view.context.connections.run, EDIT_DEAD.run, view.supplied, iid=iid, **changed
            )
            return await view.act("bus.edit", iid, run, detail={"changed": list(changed)})

        title, note = t("bus.edit"), t("bus.edit_note")
        await ask(view, title, title, submit, note=note, fields=fields, test="edit-send")

    with ui.element("div").classes("row"):
        pressed = action_button(view, t("bus.edit"), edit, test="edit")
        await view.offer(pressed, is_dead)
    # Dead copies of all consumers are redriven.
    redrive = (REDRIVE_MESSAGES, {"consumer": None}, "")
    await action_buttons(view, [redrive, MOVE_MESSAGES, TAKE], copy)
