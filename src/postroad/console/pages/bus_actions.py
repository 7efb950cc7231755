"""Buttons for queues and messages; each asks first and is recorded in the audit."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nicegui import ui

from postroad.bus import BusError, Queue, WrongPayload, browse, operations
from postroad.bus.browse import Selection
from postroad.console.markup import Markup, element, number
from postroad.console.parts.dialogs import Tone, action_button, ask, confirm
from postroad.console.view import BAD, GOOD, View

# A selection is counted up to this many messages; beyond it the dialog shows "more than".
MAX_COUNTED = 100_000
PREVIEW_ROWS = 5


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


def post_button(view: View, queue: str | None) -> None:
    """Offer to post a message, to this queue or to one of all."""
    t = view.t

    async def open_form() -> None:
        queues = {one.queue: one for one in await view.context.bus.queues()}
        if not queues:
            view.notify(t("bus.no_queue"))
            return
        fields: dict[str, Any] = {}

        def fill() -> None:
            fields["queue"] = ui.select(
                list(queues),
                value=queue or next(iter(queues)),
                label=t("bus.queue"),
                with_input=True,
            ).props('outlined dense data-test="post-queue"')
            fields["data"] = ui.textarea(t("bus.data"), value="{}").props(
                'outlined data-test="post-data"'
            )
            fields["properties"] = ui.input(
                t("bus.properties"), placeholder='{"STATE": "DONE"}'
            ).props('outlined dense data-test="post-properties"')

        async def submit() -> bool:
            chosen = queues[str(fields["queue"].value)]
            return await _post(
                view, chosen, str(fields["data"].value), str(fields["properties"].value or "")
            )

        await ask(view, t("bus.post"), t("bus.post"), submit, fill=fill, test="post-send")

    action_button(view, t("bus.post"), open_form, test="post", is_main=True)


async def _post(view: View, queue: Queue, text: str, properties: str) -> bool:
    try:
        data = read_payload(queue.payload, text)
        given = json.loads(properties) if properties.strip() else None
        if given is not None and not isinstance(given, dict):
            raise WrongPayload("properties are names and texts", hint='{"STATE": "DONE"}')
    except (BusError, ValueError) as wrong:
        view.notify(view.explain(wrong), BAD)
        return False
    return await view.act(
        "bus.post", queue.queue, lambda: view.context.bus.post(queue.queue, data, None, given)
    )


def bulk_button(view: View, verb: operations.Verb, selection: Selection) -> None:
    """Offer to redrive, move or purge every message of a selection, after showing what matches."""
    t, bus = view.t, view.context.bus

    async def open_dialog() -> None:
        count, is_complete = await _count(view, selection)
        if count == 0:
            view.notify(t("common.nothing_found"))
            return
        shown = number(count) if is_complete else t("common.more_than", count=number(count))
        destinations = await _destinations(view, selection.queue) if verb == "move" else []
        if verb == "move" and not destinations:
            view.notify(t("bus.no_destination"))
            return
        preview = await _preview(view, selection)
        fields: dict[str, Any] = {}

        def fill() -> None:
            ui.label(_sentence(view, verb, selection, shown))
            ui.html(preview, sanitize=False).classes("preview")
            if destinations:
                fields["destination"] = _destination_field(view, destinations)

        async def submit() -> bool:
            destination = str(fields["destination"].value) if fields else None
            progress = ui.notification(
                t("bus.progress", count=0), spinner=True, timeout=None, position="top"
            )

            async def run() -> int:
                total = 0
                async for total in operations.on_matching(bus, verb, selection, destination):
                    progress.message = t("bus.progress", count=number(total))
                return total

            try:
                return await view.act(
                    f"bus.{verb}",
                    selection.queue,
                    run,
                    detail={**asdict(selection), "destination": destination},
                    describe=lambda total: (t("bus.progress", count=number(total)), GOOD),
                )
            finally:
                progress.dismiss()

        label = t(f"bus.{verb}_count", count=shown)
        tone: Tone = "main" if verb == "redrive" else "danger"
        await ask(view, t(f"bus.{verb}"), label, submit, fill=fill, tone=tone)

    action_button(view, t(f"bus.{verb}"), open_dialog, test=verb, is_danger=verb == "purge")


async def _count(view: View, selection: Selection) -> tuple[int, bool]:
    """Count the messages of a selection; return whether that is all of them."""
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


def _sentence(view: View, verb: str, selection: Selection, count: str) -> str:
    given = {**asdict(selection), "state": view.t.state(selection.state), "count": count}
    what = view.t("bus.bulk_search" if selection.search else "bus.bulk_all", **given)
    return f"{what} {view.t(f'bus.{verb}_question')}"


def _destination_field(view: View, destinations: list[str]) -> ui.select:
    label = view.t("bus.destination")
    field = ui.select(destinations, value=destinations[0], label=label, with_input=True)
    return field.props("outlined dense")


async def _destinations(view: View, queue: str) -> list[str]:
    listed = await view.context.bus.queues()
    payload = next((one.payload for one in listed if one.queue == queue), "")
    return [one.queue for one in listed if one.payload == payload and one.queue != queue]


async def message_buttons(view: View, queue: str, iid: str) -> None:
    """Offer to redrive, move or remove one message, each while that is possible."""
    t, bus = view.t, view.context.bus

    async def copy(state: str | None = None) -> tuple[str, browse.State] | None:
        found = await view.cached(("bus.message", iid), lambda: browse.find(bus, iid))
        return next((one[:2] for one in found if state in (None, one[1])), None)

    async def redrive() -> None:
        await confirm(
            view,
            t("bus.redrive"),
            f"{iid}. {t('bus.redrive_question')}",
            lambda: view.act("bus.redrive", iid, lambda: bus.redrive(queue, None, iid)),
            is_danger=False,
        )

    async def take() -> None:
        async def run() -> str:
            return "taken" if await bus.take(iid) is not None else "gone"

        await confirm(
            view,
            t("bus.take"),
            t("bus.take_question", iid=iid),
            lambda: view.act("bus.take", iid, run),
        )

    async def move() -> None:
        destinations, found = await _destinations(view, queue), await copy()
        if found is None or not destinations:
            view.notify(t("bus.no_destination" if found else "bus.message_gone"))
            return
        fields: dict[str, Any] = {}

        def fill() -> None:
            ui.label(f"{iid}. {t('bus.move_question')}")
            fields["destination"] = _destination_field(view, destinations)

        async def submit() -> bool:
            destination = str(fields["destination"].value)
            return await view.act(
                "bus.move",
                iid,
                lambda: operations.move(bus, queue, destination, found[0], found[1], iid),
                detail={"consumer": found[0], "state": found[1], "destination": destination},
            )

        await ask(view, t("bus.move"), t("bus.move"), submit, fill=fill, tone="danger")

    async def is_there() -> bool:
        return await copy() is not None

    async def is_dead() -> bool:
        return await copy("dead") is not None

    with ui.element("div").classes("row"):
        await view.offer(action_button(view, t("bus.redrive"), redrive, test="redrive"), is_dead)
        await view.offer(action_button(view, t("bus.move"), move, test="move"), is_there)
        await view.offer(
            action_button(view, t("bus.take"), take, test="take", is_danger=True), is_there
        )
