"""The pages of the console, one module per room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroad.console.house import House

__all__ = ["all_pages"]


def all_pages() -> Sequence[Callable[[House], None]]:
    """Return what registers each room's pages."""
    # Imported when asked for: pages know the frame, which knows the house.
    from postroad.console.pages.bus import add_bus_pages
    from postroad.console.pages.graphs import add_graph_pages
    from postroad.console.pages.house import add_house_pages
    from postroad.console.pages.messages import add_message_pages
    from postroad.console.pages.overview import add_overview_page

    return (
        add_overview_page,
        add_message_pages,
        add_graph_pages,
        add_bus_pages,
        add_house_pages,
    )
