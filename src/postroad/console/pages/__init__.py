"""The pages of the console, one module per component or part of it.

A component adds its pages with one line in `COMPONENT_PAGES`: its navigation entry, the package
that must be installed, and the modules with its pages.
"""

from __future__ import annotations

import importlib
import importlib.util

from postroad.console.context import Context

__all__ = ["COMPONENT_PAGES", "add_pages", "is_there"]

COMPONENT_PAGES = (
    ("alerts", "postroad.alerts", ("alerts",)),
    ("bridges", "postroad.bridge.status", ("bridges",)),
    ("exchange", "postroad.exchange", ("exchange", "exchange_messages", "exchange_process")),
    ("coordination", "postroad.coordination", ("coordination", "coordination_event")),
    ("intake", "postroad.intake", ("intake", "intake_files", "intake_servers")),
)


def add_pages(context: Context) -> None:
    """Register the pages; a component that is not installed gets a page that states this."""
    # Imported late, because pages import the frame, which imports the context.
    from postroad.console.frame import PAGES, add_page
    from postroad.console.pages.absent import absent_page

    modules = ["tour", "overview", "messages", "graphs", "bus", "administration", "find"]
    for place, package, names in COMPONENT_PAGES:
        if is_there(package):
            modules += names
        else:
            add_page(context, absent_page(place, package.split(".")[1]))
    for name in modules:
        module = importlib.import_module(f"{__name__}.{name}")
        if (add_download := getattr(module, "add_download", None)) is not None:
            add_download(context)
    for page in PAGES:
        add_page(context, page)


def is_there(module: str) -> bool:
    """Check whether a module and all its parent packages are installed."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
