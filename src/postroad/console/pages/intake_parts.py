"""Shared by the pages of the intake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.console.markup import Markup, element
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


async def servers(view: View) -> Sequence[Row]:
    """Return all servers, shared by all pages."""
    return await view.load("intake.servers", SERVERS.all)
