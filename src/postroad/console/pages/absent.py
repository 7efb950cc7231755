"""The page of a component that is not installed, with instructions to install it."""

from __future__ import annotations

from nicegui import ui

from postroad.console.frame import Page
from postroad.console.markup import element, joined
from postroad.console.parts.lists import gone
from postroad.console.view import View


def absent_page(place: str, extra: str) -> Page:
    """Return the page of a component that is not installed."""

    async def show(view: View) -> None:
        t = view.t
        command = element("code", f"pip install 'postroad[{extra}]'")
        advice = joined((t("room.absent_advice"), " ", command))
        ui.html(gone(t("room.absent"), advice), sanitize=False)

    return Page(f"/{place}", place, f"nav.{place}", show)
