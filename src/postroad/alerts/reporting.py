"""How any room reports: two verbs in two colours, each in the caller's transaction."""

from __future__ import annotations

from typing import Any, Literal

from psycopg import AsyncConnection, Connection

from postroad.alerts import calls

Severity = Literal["info", "warning", "error", "critical"]


def raise_alert(
    connection: Connection[Any],
    key: str,
    *,
    room: str,
    severity: Severity,
    title: str,
    text: str = "",
) -> None:
    """Report that something is wrong, in the caller's transaction.

    The same key again counts up and tells nobody anew until it was cleared. Waits for nobody.
    Raises InvalidAlert.
    """
    calls.run(connection, calls.RAISE, (key, room, severity, title, text))


def clear_alert(connection: Connection[Any], key: str) -> None:
    """Report that it is well again, in the caller's transaction; nothing if it was not raised."""
    calls.run(connection, calls.CLEAR, (key,))


async def raise_alert_async(
    connection: AsyncConnection[Any],
    key: str,
    *,
    room: str,
    severity: Severity,
    title: str,
    text: str = "",
) -> None:
    """Report that something is wrong, in the caller's transaction.

    The same key again counts up and tells nobody anew until it was cleared. Waits for nobody.
    Raises InvalidAlert.
    """
    await calls.run_async(connection, calls.RAISE, (key, room, severity, title, text))


async def clear_alert_async(connection: AsyncConnection[Any], key: str) -> None:
    """Report that it is well again, in the caller's transaction; nothing if it was not raised."""
    await calls.run_async(connection, calls.CLEAR, (key,))
