"""HTML as values: text is escaped unless it is already markup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup as Markup
from markupsafe import escape

from postroad.bus.status import COUNT_LIMIT

# Shown in place of an empty value.
NOTHING = "–"  # noqa: RUF001 - a dash, not a minus

# The tones of states; other states are neutral.
_STATES_BY_TONE = {
    "good": (
        "running good done completed committed stored ready active delivered sent "
        "resolved connected finished applied ok listening notified clear"
    ),
    "wait": (
        "waiting delayed starting begun paused compensating retrying pending queued "
        "preparing prepared new open found leased compensated note"
    ),
    "bad": (
        "failed dead bad stuck parked refused in_doubt error rejected raised "
        "rolled_back lost down unreachable"
    ),
}
TONES: Mapping[str, str] = {
    state: tone for tone, states in _STATES_BY_TONE.items() for state in states.split()
}


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Build an element; `class_` is class, underscores in names become dashes."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in ("input", "br", "img", "hr"):
        return Markup(f"<{tag}{given}>")  # noqa: S704 - escaped above
    return Markup(f"<{tag}{given}>{joined(children)}</{tag}>")  # noqa: S704 - escaped above


def joined(children: Iterable[object]) -> Markup:
    """Join children; None is omitted, text is escaped."""
    return Markup("").join(
        joined(child) if isinstance(child, list | tuple) else escape(child)
        for child in children
        if child is not None
    )


def address(*parts: object, **query: object) -> str:
    """Build a URL below the console; parts are quoted, empty parameters omitted."""
    path = "/".join(quote(str(part), safe="") for part in parts)
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"/console/{path}" + (f"?{urlencode(given)}" if given else "")


def link(text: object, href: str, **attributes: object) -> Markup:
    """Make a link."""
    return element("a", text, href=href, **attributes)


def badge(word: str, state: str | None = None) -> Markup:
    """Show a state as a coloured word."""
    return element("span", word, class_=f"badge {TONES.get((state or word).lower(), 'plain')}")


def card(title: object, *content: object, class_: str = "", note: object = None) -> Markup:
    """Frame content under a title."""
    head = element("div", element("h2", title), note, class_="card-head") if title else None
    return element("section", head, *content, class_=f"card {class_}".strip())


def facts(pairs: Iterable[tuple[object, object]]) -> Markup:
    """List names and values."""
    return element(
        "dl", [(element("dt", name), element("dd", value)) for name, value in pairs], class_="facts"
    )


def number(value: float | None) -> str:
    """Write a count with thin spaces between thousands."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", "\u202f")


def count_of(values: Iterable[int]) -> str:
    """Write a sum of limited counts, with a plus sign if one of them has reached its limit."""
    listed = list(values)
    return number(sum(listed)) + ("+" if any(one >= COUNT_LIMIT for one in listed) else "")


def rate(value: float | None) -> str:
    """Write messages per second."""
    if value is None:
        return NOTHING
    if value >= 100:
        return number(value)
    return f"{value:.1f}"


def moment(value: datetime | None) -> Markup | str:
    """Write a time; its full form is shown on hover."""
    if value is None:
        return NOTHING
    shown = value.astimezone()
    today = datetime.now(UTC).astimezone().date()
    form = "%H:%M:%S" if shown.date() == today else "%Y-%m-%d %H:%M"
    return element(
        "time", shown.strftime(form), datetime=shown.isoformat(), title=shown.isoformat(sep=" ")
    )


def pretty(data: Any) -> str:
    """Format data for display: JSON is indented, anything else is unchanged."""
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except ValueError:
            return str(data)
    return json.dumps(data, ensure_ascii=False, indent=2, default=str)
