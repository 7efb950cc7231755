"""Small pictures of the navigation, drawn as strokes in the colour of the text."""

from __future__ import annotations

from postroad.console.markup import Markup

_STROKES = {
    "brand": "M3 18c4 0 4-12 9-12s5 12 9 12M7 18h.01M17 18h.01",
    "tour": "M6 21V4M6 5h12l-3 4 3 4H6",
    "overview": "M4 5h6v6H4zM14 13h6v6h-6zM10 8h7v5M7 11v5h7",
    "bus": "M4 6h16M4 12h16M4 18h16M8 4v4M14 10v4M11 16v4",
    "sagas": "M5 6h5v4H5zM14 4h5v4h-5zM14 15h5v4h-5zM10 8h4M10 8l4 9",
    "exchange": "M4 7h13l-3-3M20 17H7l3 3",
    "coordination": "M12 4v6M12 10l-6 6M12 10l6 6M4 16h4v4H4zM16 16h4v4h-4zM10 2h4v4h-4z",
    "intake": "M12 3v11M8 10l4 4 4-4M4 17v3h16v-3",
    "bridges": "M3 17h18M5 17v-4M19 17v-4M3 13c5 0 5-6 9-6s4 6 9 6M9 17v-8M15 17v-8",
    "alerts": "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
    "workers": "M4 8h16v11H4zM9 8V5h6v3M4 13h16",
    "settings": "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
    "accounts": "M12 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 4-6 8-6s8 2 8 6",
    "audit": "M6 3h9l4 4v14H6zM9 11h7M9 15h7M14 3v5h5",
    "theme": "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
    "menu": "M4 7h16M4 12h16M4 17h16",
}


def icon(name: str) -> Markup:
    """Draw an icon, hidden from screen readers, which read the text beside it."""
    return Markup(
        '<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" fill="none" '
        'stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round">'
        f'<path d="{_STROKES[name]}"/></svg>'
    )
