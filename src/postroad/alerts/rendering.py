"""Subject and text of a notice, made from its items alone, so that each attempt is identical.

Pure. An item is one object of `notice.items`, as schema alerts wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# A notice lists this many items; the rest is counted.
MAX_ITEMS = 50
_MAX_BODY_CHARACTERS = 2_000
_SERIOUS_FIRST = ("critical", "error", "warning", "info")
_HEADS = {"raised": "", "worse": "has become ", "cleared": "ALL CLEAR, was ", "open": "still "}

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice as a sender has taken it."""

    id: int
    channel: str
    kind: str
    items: Sequence[Item]
    attempt: int
    token: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Rendered:
    """What is sent. `message_id` is the same for every attempt to send a notice."""

    subject: str
    text: str
    message_id: str


def render(notice: Notice, installation: str) -> Rendered:
    """Return subject and text of a notice."""
    subject = f"[{installation}] {_subject(notice)}"
    lines: list[str] = []
    for item in notice.items[:MAX_ITEMS]:
        lines += [*_paragraph(item), ""]
    if len(notice.items) > MAX_ITEMS:
        lines += [f"… and {len(notice.items) - MAX_ITEMS} more.", ""]
    if not notice.items:
        lines += ["No alert is open. This is the regular heartbeat.", ""]
    lines.append("Open alerts: postroad alerts list")
    if any(item["what"] != "cleared" for item in notice.items) and notice.kind != "test":
        lines.append("Stop reminders: postroad alerts ack KEY")
    moment = int(notice.created_at.timestamp() * 1000)
    return Rendered(subject, "\n".join(lines) + "\n", f"<notice.{notice.id}.{moment}@postroad>")


def _subject(notice: Notice) -> str:
    items = notice.items
    if not items:
        return "nothing is open"
    if notice.kind == "test":
        return f"test: {_line(items[0]['title'])}"
    if notice.kind == "digest":
        return f"still open: {_counted(items)}: {_line(items[0]['title'])}"
    current = [item for item in items if item["what"] != "cleared"]
    cleared = len(items) - len(current)
    if not current:
        many = f"{cleared} all-clears: " if cleared > 1 else "all clear: "
        return many + _line(items[0]["title"])
    head = _counted(current) if len(current) > 1 else str(current[0]["severity"])
    tail = f" (and {cleared} all-clear{'s' if cleared > 1 else ''})" if cleared else ""
    return f"{head}: {_line(current[0]['title'])}{tail}"


def _counted(items: Sequence[Item]) -> str:
    counts = Counter(str(item["severity"]) for item in items)
    return ", ".join(f"{counts[one]} {one}" for one in _SERIOUS_FIRST if counts[one])


def _paragraph(item: Item) -> list[str]:
    lines = [f"{_HEADS[item['what']]}{item['severity']}: {_line(item['title'])}"]
    if item["body"]:
        body = str(item["body"])
        cut = body if len(body) <= _MAX_BODY_CHARACTERS else body[:_MAX_BODY_CHARACTERS] + " …"
        lines += [f"  {line}" for line in cut.splitlines()]
    times = f"since {_moment(item['raised_at'])}"
    if item["count"] > 1:
        times = f"{item['count']} times {times}, last {_moment(item['last_at'])}"
    if item["cleared_at"]:
        times += f", cleared {_moment(item['cleared_at'])}"
    lines.append(f"  {item['room']}, {times}")
    lines.append(f"  key {item['key']}")
    return lines


def _line(text: Any) -> str:
    """Return the text as one line: a line break in a subject would inject a header."""
    return " ".join(str(text).split())


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
