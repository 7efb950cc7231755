"""The pages of the console, one module per component.

A component adds its pages with one line in `COMPONENT_PAGES`: its navigation entry, the
package that must be installed, and the function that registers the pages.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence

from postroad.console.context import Context

__all__ = ["COMPONENT_PAGES", "all_pages", "is_there"]

COMPONENT_PAGES: tuple[tuple[str, str, str], ...] = (
    ("alerts", "postroad.alerts", "postroad.console.pages.alerts:add_alert_pages"),
    ("bridges", "postroad.bridge.status", "postroad.console.pages.bridges:add_bridge_pages"),
    ("exchange", "postroad.exchange", "postroad.console.pages.exchange:add_exchange_pages"),
    (
        "coordination",
        "postroad.coordination",
        "postroad.console.pages.coordination:add_coordination_pages",
    ),
    ("intake", "postroad.intake", "postroad.console.pages.intake:add_intake_pages"),
)


def all_pages() -> Sequence[Callable[[Context], None]]:
    """Return the functions that register pages; one that is not installed gets a notice."""
    # Imported late, because pages import the frame, which imports the context.
    from postroad.console.pages.absent import absent_page
    from postroad.console.pages.administration import add_administration_pages
    from postroad.console.pages.bus import add_bus_pages
    from postroad.console.pages.graphs import add_graph_pages
    from postroad.console.pages.messages import add_message_pages
    from postroad.console.pages.overview import add_overview_page

    components: list[Callable[[Context], None]] = []
    for place, package, pages in COMPONENT_PAGES:
        module, _, function = pages.partition(":")
        if is_there(package) and is_there(module):
            components.append(getattr(importlib.import_module(module), function))
        else:
            components.append(absent_page(place, package.split(".")[1]))
    return (
        add_overview_page,
        add_message_pages,
        add_graph_pages,
        add_bus_pages,
        *components,
        add_administration_pages,
    )


def is_there(module: str) -> bool:
    """Check whether a module and all its parent packages are installed."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
