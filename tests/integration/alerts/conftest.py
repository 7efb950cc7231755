"""Settings with short windows, and a reporter that commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from postroad.alerts import clear_alert, raise_alert
from postroad.settings import AlertsSettings

SHORT = timedelta(milliseconds=50)


@pytest.fixture
def settings_for() -> Callable[..., AlertsSettings]:
    """Give a function that makes settings of a test's own: quick, unless it says otherwise."""

    def make(**changes: Any) -> AlertsSettings:
        quick: dict[str, Any] = {
            "group_window": SHORT,
            "quiet_window": SHORT,
            "backoff": SHORT,
            "backoff_max": timedelta(milliseconds=200),
            "poll_interval": SHORT,
            "send_timeout": timedelta(seconds=5),
        }
        return AlertsSettings(**{**quick, **changes})

    return make


class Reporter:
    """Raises and clears alerts, each in a transaction of its own."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def raise_(self, key: str, *, severity: str = "error", title: str | None = None) -> None:
        raise_alert(
            self._connection,
            key,
            room="test",
            severity=severity,
            title=title or f"title of {key}",
            text=f"text of {key}",
        )

    def clear(self, key: str) -> None:
        clear_alert(self._connection, key)


@pytest.fixture
def report(database: str) -> Iterator[Reporter]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield Reporter(connection)
