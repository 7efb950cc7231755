"""Messages as they arrive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from postroad.bus.message import Message

INDIA = timezone(timedelta(hours=5, minutes=30))


def _headers(added: datetime, text: str) -> Any:
    return Message(1, added, "orders.1@n", None, None, (), text, "", "").headers  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("added", "text"),
    [
        (datetime(2026, 11, 16, 16, 0, tzinfo=UTC), "2026-11-16 16:00:00+00"),
        (datetime(2026, 11, 16, 16, 0, 0, 120_000, UTC), "2026-11-16 16:00:00.12+00"),
        (datetime(2026, 11, 16, 16, 0, 0, 1, UTC), "2026-11-16 16:00:00.000001+00"),
        (datetime(2026, 11, 16, 16, 0, 0, 100, INDIA), "2026-11-16 16:00:00.0001+05:30"),
    ],
)
def test_the_time_of_posting_is_written_as_the_server_does(added: datetime, text: str) -> None:
    assert _headers(added, "") == {"enqueue_time": text}


@pytest.mark.parametrize("value", ['"yesterday"', "NULL"])
def test_the_time_of_a_forwarded_message_is_kept(value: str) -> None:
    headers = _headers(datetime(2026, 11, 16, tzinfo=UTC), f'"enqueue_time"=>{value}')
    assert headers == {"enqueue_time": None if value == "NULL" else "yesterday"}
