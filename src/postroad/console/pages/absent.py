"""The page of a component that is not installed, with instructions to install it."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from postroad.console.context import Context
from postroad.console.frame import add_page
from postroad.console.markup import card, element, joined
from postroad.console.parts.lists import empty
from postroad.console.view import View


def absent_page(place: str, extra: str) -> Callable[[Context], None]:
    """Return the function that registers the page of a component that is not installed."""

    async def show(view: View) -> None:
        t = view.t
        command = element("code", f"pip install 'postroad[{extra}]'")
        advice = joined((t("room.absent_advice"), " ", command))
        shown = card(None, element("div", empty(t("room.absent"), advice), class_="empty"))
        ui.html(shown, sanitize=False)

    return lambda context: add_page(context, f"/{place}", place, f"nav.{place}", show)
