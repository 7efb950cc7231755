"""Questions before something is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from postroad.console.markup import element
from postroad.console.view import View

__all__ = ["action_button", "confirm", "form_dialog"]


async def confirm(view: View, title: str, text: str, *, is_danger: bool = True) -> bool:
    """Ask whether to go on."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        dialog.props(f'aria-label="{title}"')
        ui.html(element("h2", title), sanitize=False)
        ui.label(text)
        with ui.row().classes("row"):
            ui.button(
                view.t("common.go_on"),
                on_click=lambda: dialog.submit(True),
                color="negative" if is_danger else "primary",
            ).mark("confirm").props('data-test="confirm"')
            ui.button(view.t("common.cancel"), on_click=lambda: dialog.submit(False)).props("flat")
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
    button = ui.button(label, on_click=do, color="negative" if is_danger else "primary")
    button.props(f'data-test="{test}" no-caps')
    if not is_main:
        button.props("outline")
    return button


def form_dialog(title: str) -> ui.dialog:
    """Make a dialog to put fields into."""
    dialog = ui.dialog()
    dialog.props(f'aria-label="{title}"')
    return dialog
