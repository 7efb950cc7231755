"""Questions before something is done, and the buttons that lead to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from nicegui import ui

from postroad.console.markup import Markup, element
from postroad.console.view import View

__all__ = ["action_button", "buttons", "confirm", "form_dialog", "press_button", "row_button"]

Tone = Literal["main", "danger", "plain", "quiet"]


def press_button(
    label: str, do: Callable[[], Any], tone: Tone = "plain", test: str | None = None
) -> ui.button:
    """Make a button in the colours of the page."""
    button = ui.button(label, on_click=do, color=None).classes(f"act {tone}")
    button.props("no-caps unelevated" + (f' data-test="{test}"' if test else ""))
    return button


def row_button(view: View, label: str, verb: str, key: str) -> Markup | None:
    """Put a button into a row of a table, which is drawn anew all the time; see `View.on_row`."""
    if not view.may("operator"):
        return None
    return element("button", label, type="button", class_="button plain small", data_verb=verb,
                   data_key=key, data_test=f"{verb}-row")  # fmt: skip


def buttons(view: View, dialog: ui.dialog, label: str, *, tone: Tone = "main", test: str) -> None:
    """Put the two ways out of a dialog under its fields."""
    with ui.row().classes("row"):
        press_button(label, lambda: dialog.submit(True), tone, test)
        press_button(view.t("common.cancel"), dialog.close, "quiet")


async def confirm(view: View, title: str, text: str, *, is_danger: bool = True) -> bool:
    """Ask whether to go on."""
    with form_dialog(title) as dialog, ui.card().classes("dialog"):
        ui.html(element("h2", title), sanitize=False)
        ui.label(text)
        buttons(
            view,
            dialog,
            view.t("common.go_on"),
            tone="danger" if is_danger else "main",
            test="confirm",
        )
    answer = await dialog
    dialog.delete()
    return bool(answer)


def action_button(
    view: View,
    label: str,
    do: Callable[[], Awaitable[None]],
    *,
    test: str,
    is_danger: bool = False,
    is_main: bool = False,
) -> ui.button | None:
    """Offer something to operators; viewers do not see it."""
    if not view.may("operator"):
        return None
    return press_button(label, do, "danger" if is_danger else "main" if is_main else "plain", test)


def form_dialog(title: str) -> ui.dialog:
    """Make a dialog to put fields into."""
    dialog = ui.dialog()
    dialog.props(f'aria-label="{title}"')
    return dialog
