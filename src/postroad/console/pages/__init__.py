"""The pages of the console, one module per component or part of it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from postroad.console.context import Context


def add_pages(context: Context) -> None:
    """Register the pages."""
    # Imported late, because pages import the frame, which imports the context.
    from postroad.console.frame import PAGES, add_page

    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        if (add_download := getattr(module, "add_download", None)) is not None:
            add_download(context)
    for page in PAGES:
        add_page(context, page)
