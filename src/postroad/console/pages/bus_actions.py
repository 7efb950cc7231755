"""What operators do with queues and messages: each asks first and is written down."""

from __future__ import annotations

import json
from typing import Any

from nicegui import ui

from postroad.bus import BusError, Queue, WrongPayload, operations
from postroad.bus.browse import State
from postroad.console.markup import address, element
from postroad.console.parts.dialogs import action_button, buttons, confirm, form_dialog
from postroad.console.view import View

__all__ = [
    "move_button",
    "post_button",
    "purge_button",
    "read_payload",
    "redrive_button",
    "take_button",
]

# The figures in the list are up to two seconds old; what was done is to be seen at once.
_LOOKS = ("bus.status", "bus.queues")


def read_payload(payload: str, text: str) -> Any:
    """Read what a person typed as the payload of a queue. Raises WrongPayload."""
    if payload == "text":
        return text
    if payload == "bytea":
        try:
            return bytes.fromhex(text.removeprefix("\\x"))
        except ValueError:
            raise WrongPayload("not hexadecimal", hint="write bytes as 00ff10") from None
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise WrongPayload(f"not JSON: {wrong}", hint='write it as {"number": "4711"}') from None


async def _changed(view: View) -> None:
    for key in _LOOKS:
        view.house.looks.forget(key)
    await view.refresh()


def post_button(view: View, queue: Queue | None) -> None:
    """Offer to post a message, to this queue or to one of all."""
    t = view.t

    async def ask() -> None:
        queues = {one.queue: one for one in await view.house.bus.queues()}
        if not queues:
            view.tell(t("bus.no_queue"))
            return
        with form_dialog(t("bus.post")) as dialog, ui.card().classes("dialog"):
            ui.html(element("h2", t("bus.post")), sanitize=False)
            first = queue.queue if queue else next(iter(queues))
            chosen = ui.select(list(queues), value=first, label=t("bus.queue"), with_input=True)
            chosen.props('outlined dense data-test="post-queue"')
            data = ui.textarea(t("bus.data"), value="{}").props('outlined data-test="post-data"')
            properties = ui.input(t("bus.properties"), placeholder='{"STATE": "DONE"}')
            properties.props('outlined dense data-test="post-properties"')
            buttons(view, dialog, t("bus.post"), test="post-send")
        dialog.open()
        if await dialog:
            await _post(
                view, queues[str(chosen.value)], str(data.value), str(properties.value or "")
            )
        dialog.delete()

    action_button(view, t("bus.post"), ask, test="post", is_main=True)


async def _post(view: View, queue: Queue, text: str, properties: str) -> None:
    try:
        data = read_payload(queue.payload, text)
        given = json.loads(properties) if properties.strip() else None
        if given is not None and not isinstance(given, dict):
            raise WrongPayload("properties are names and texts", hint='{"STATE": "DONE"}')
    except (BusError, ValueError) as wrong:
        view.tell(f"{wrong} {getattr(wrong, 'hint', '') or ''}", "negative")
        return
    iid = await view.act(
        "bus.post", queue.queue, lambda: operations.post(view.house.bus, queue.queue, data, given)
    )
    if iid is not None:
        await _changed(view)


def redrive_button(view: View, queue: str, consumer: str | None, iid: str | None = None) -> None:
    """Offer to bring dead messages back."""
    t = view.t

    async def ask() -> None:
        if await confirm(
            view, t("bus.redrive"), t("bus.redrive_question", queue=iid or queue), is_danger=False
        ):
            await view.act(
                "bus.redrive",
                iid or queue,
                lambda: operations.redrive(view.house.bus, queue, consumer, iid),
                detail={"consumer": consumer},
            )
            await _changed(view)

    action_button(view, t("bus.redrive"), ask, test="redrive")


def take_button(view: View, iid: str, consumer: str | None) -> None:
    """Offer to take a message away from where it waits."""
    t = view.t

    async def ask() -> None:
        if await confirm(view, t("bus.take"), t("bus.take_question", iid=iid)):

            async def take() -> str:
                message = await operations.take(view.house.bus, iid, consumer)
                return "taken" if message is not None else "gone"

            await view.act("bus.take", iid, take, detail={"consumer": consumer})
            await _changed(view)

    action_button(view, t("bus.take"), ask, test="take", is_danger=True)


def move_button(
    view: View, queue: str, consumer: str, state: State, iid: str | None = None
) -> None:
    """Offer to move one message, or all of a state, to another queue."""
    t = view.t

    async def ask() -> None:
        bus = view.house.bus
        listed = await bus.queues()
        payload = next((one.payload for one in listed if one.queue == queue), "")
        others = [one.queue for one in listed if one.payload == payload and one.queue != queue]
        if not others:
            view.tell(t("bus.no_destination"))
            return
        with form_dialog(t("bus.move")) as dialog, ui.card().classes("dialog"):
            ui.html(element("h2", t("bus.move")), sanitize=False)
            ui.label(t("bus.move_question", what=iid or t.state(state), queue=queue))
            chosen = ui.select(others, value=others[0], label=t("bus.destination"), with_input=True)
            chosen.props("outlined dense")
            buttons(view, dialog, t("bus.move"), tone="danger", test="confirm")
        dialog.open()
        if await dialog:
            destination = str(chosen.value)

            async def move() -> int:
                total = 0
                while moved := await operations.move(bus, queue, destination, consumer, state, iid):
                    total += moved
                    if iid is not None:
                        break
                return total

            await view.act(
                "bus.move",
                iid or queue,
                move,
                detail={"consumer": consumer, "state": state, "destination": destination},
            )
            await _changed(view)
        dialog.delete()

    action_button(view, t("bus.move"), ask, test="move")


def purge_button(view: View, queue: str, consumer: str, state: State) -> None:
    """Offer to remove every message of a state, unread."""
    t = view.t

    async def ask() -> None:
        question = t("bus.purge_question", state=t.state(state), queue=queue, consumer=consumer)
        if not await confirm(view, t("bus.purge"), question):
            return
        progress = ui.notification(
            t("bus.purging", count=0), spinner=True, timeout=None, position="top"
        )

        async def purge() -> int:
            total = 0
            async for total in operations.purge(view.house.bus, queue, consumer, state):
                progress.message = t("bus.purging", count=total)
            return total

        await view.act("bus.purge", queue, purge, detail={"consumer": consumer, "state": state})
        progress.dismiss()
        await _changed(view)

    action_button(view, t("bus.purge"), ask, test="purge", is_danger=True)


def messages_address(queue: str, consumer: str, state: str) -> str:
    """Return where the messages of a consumer are listed."""
    return address("bus", "queues", queue, "messages", consumer=consumer, state=state)
