"""Confirmation dialogs and the buttons that open them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

from nicegui import ui

from postroad.console.markup import Markup, element, joined
from postroad.console.view import View

Tone = Literal["main", "danger", "plain", "quiet"]


def press_button(
    label: str, do: Callable[[], Any], tone: Tone = "plain", test: str | None = None
) -> ui.button:
    """Create a button in the colours of the page."""
    button = ui.button(label, on_click=do, color=None).classes(f"act {tone}")
    button.props("no-caps unelevated" + (f' data-test="{test}"' if test else ""))
    return button


def field(
    label: str, kind: Callable[..., Any] = ui.input, props: str = "", **given: Any
) -> Callable[[str], Any]:
    """Return a function that creates a field of a dialog, such as `ui.input` or `ui.select`."""
    if kind is ui.checkbox:
        return lambda test: kind(label, **given).props(f'data-test="{test}"')
    shown = f"outlined dense {props}"
    return lambda test: kind(label=label, **given).props(f'data-test="{test}" {shown}')


def row_button(view: View, label: str, verb: str, key: str) -> Markup | None:
    """Add a button to a row of a table that is refreshed; see `View.on_row`."""
    if not view.may("operator"):
        return None
    return element("button", label, type="button", class_="button plain small", data_verb=verb,
                   data_key=key, data_test=f"{verb}-row")  # fmt: skip


async def accept(_: object) -> bool:
    """Close a dialog that has nothing to check."""
    return True


async def ask(
    view: View,
    title: str,
    label: str,
    submit: Callable[[dict[str, Any]], Awaitable[bool]] = accept,
    *,
    note: str = "",
    content: Markup | None = None,
    fields: Mapping[str, Callable[[str], Any]] | None = None,
    tone: Tone = "main",
    test: str = "confirm",
    can_cancel: bool = True,
) -> bool:
    """Show a dialog, and call `submit` with the values of its fields; return if it is confirmed.

    The dialog closes when `submit` returns True or the user cancels; until then the fields keep
    their input. The test hooks of fields begin with `test`, the hook of the button.
    """
    created: dict[str, Any] = {}

    async def press() -> None:
        confirmed.disable()
        try:
            if await submit({name: one.value for name, one in created.items()}):
                dialog.submit(True)
        finally:
            confirmed.enable()

    with ui.dialog() as dialog, ui.card().classes("dialog"):
        # Neither a click outside nor Escape may discard the input.
        is_kept = fields or not can_cancel
        dialog.props(f'aria-label="{title}"' + (" persistent" if is_kept else ""))
        ui.html(element("h2", title), sanitize=False)
        if note:
            ui.label(note)
        if content is not None:
            ui.html(content, sanitize=False)
        prefix = test.rpartition("-")[0]
        for name, create in (fields or {}).items():
            created[name] = create(f"{prefix}-{name}".replace("_", "-") if prefix else name)
        with ui.row().classes("row"):
            confirmed = press_button(label, press, tone, test)
            if can_cancel:
                press_button(view.t("common.cancel"), dialog.close, "quiet")
    view.open_dialogs += 1
    try:
        return bool(await dialog)
    finally:
        view.open_dialogs -= 1
        # The page may have been left while the dialog was open; then it no longer exists.
        if not dialog.is_deleted:
            dialog.delete()


async def show_once(view: View, title: str, values: Iterable[str]) -> None:
    """Show secrets that are not stored in plain text, until the user has copied them."""
    t = view.t
    shown = [
        element("pre", value, class_="data", tabindex="0", data_test="secret") for value in values
    ]
    note = t("common.shown_once")
    await ask(view, title, t("common.copied"), note=note, content=joined(shown), can_cancel=False)


def action_button(
    view: View,
    label: str,
    do: Callable[[], Awaitable[None]],
    *,
    test: str,
    is_danger: bool = False,
    is_main: bool = False,
) -> ui.button | None:
    """Offer an action to operators; viewers do not see it."""
    if not view.may("operator"):
        return None
    return press_button(label, do, "danger" if is_danger else "main" if is_main else "plain", test)
