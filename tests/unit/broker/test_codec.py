from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker import codec


def message(body: object = "{}", **properties: object) -> dict[str, object]:
    return {"body": body, "headers": {}, "properties": properties}


@given(st.text())
def test_any_text_survives(body: str) -> None:
    text = codec.encode(message(body))
    assert "\x00" not in text
    assert codec.decode(text, "q", "1", False)["body"] == body


def test_bytes_travel_as_base64_and_say_so() -> None:
    decoded = codec.decode(codec.encode(message(b"\x00\xff")), "q", "1", False)
    assert decoded["properties"]["body_encoding"] == "base64"
    assert decoded["body"] == "AP8="


def test_a_delivery_knows_its_tag_and_whether_it_is_the_first() -> None:
    decoded = codec.decode(codec.encode(message()), "orders", "7", True)
    assert decoded["properties"]["delivery_tag"] == "7"
    assert decoded["properties"]["delivery_info"] == {"redelivered": True, "queue": "orders"}


@pytest.mark.parametrize(
    ("priority", "level"), [(None, 0), (0, 0), (5, 5), (9, 9), (12, 9), (-3, 0), ("x", 0)]
)
def test_priorities_are_levels_from_0_to_9(priority: object, level: int) -> None:
    assert codec.level_of(message(priority=priority)) == level


def test_the_eta_is_read_where_it_can_be_read() -> None:
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert codec.due_at({"headers": {"eta": at.isoformat()}}) == at
    assert codec.due_at({"headers": {"eta": "2026-01-02T03:04:00"}}) == at
    assert codec.due_at({"headers": {"eta": "tomorrow"}}) is None
    assert codec.due_at({"headers": None}) is None


def test_the_shorter_life_counts_and_begins_when_it_is_due() -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    ends = codec.expires_at(message(expiration="60000"), timedelta(minutes=5), due)
    assert ends == due + timedelta(minutes=1)
    assert codec.expires_at(message(), None, None) is None
