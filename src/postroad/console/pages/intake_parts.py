"""Shared by the pages of the intake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.console.markup import Markup, address, element
from postroad.console.parts.lists import page_tabs
from postroad.console.view import View
from postroad.intake import status
from postroad.intake.resources import SERVERS
from postroad.operate import Row


def bar(done: int | None, total: int | None) -> Markup:
    """Draw a progress bar."""
    percent = min(100, 100 * (done or 0) // total) if total else 0
    inner = element("span", style=f"width:{percent}%")
    return element("div", inner, class_="bar", role="progressbar", aria_valuenow=percent,
                   aria_valuemin=0, aria_valuemax=100, aria_label=f"{percent} %")  # fmt: skip


async def counts(view: View) -> Mapping[str, int]:
    """Return how many files have each status, shared by all pages."""
    return await view.load("intake.counts", status.counts)


def intake_tabs(view: View, shown: str) -> Markup:
    """Link the pages of the intake."""
    pages = {
        "pipeline": ("intake.pipeline", address("intake")),
        "servers": ("intake.servers", address("intake", "servers")),
        "files": ("intake.files", address("intake", "files")),
    }
    return page_tabs(view, shown, pages)


async def servers(view: View) -> Sequence[Row]:
    """Return all servers, shared by all pages."""
    return await view.load("intake.servers", SERVERS.all)
