"""Reports of other databases reach the one whose sender tells people."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from postroad.alerts import AlertRelay, clear_alert, raise_alert
from postroad.cli.rooms import SCHEMAS
from postroad.testing import TestServer, wait_until_async

QUICK = timedelta(milliseconds=20)


async def test_what_is_raised_and_cleared_elsewhere_is_known_in_the_house(
    server: TestServer,
) -> None:
    with server.clone(*SCHEMAS) as house, server.clone(*SCHEMAS) as elsewhere:
        with psycopg.connect(elsewhere) as connection:
            for key in ("a", "b"):
                raise_alert(connection, key, room="coordination", severity="error", title=key)
        async with AlertRelay([elsewhere, house], house, interval=QUICK) as relay:
            assert [row[0] for row in await _open(house, count=2)] == ["a", "b"]
            with psycopg.connect(elsewhere) as connection:
                clear_alert(connection, "a")
            assert await _open(house, count=1) == [("b", "coordination", "error", "b")]
            with psycopg.connect(elsewhere) as connection:
                clear_alert(connection, "b")
            assert await _open(house, count=0) == []
            assert relay.is_running
        with psycopg.connect(elsewhere) as connection:
            assert connection.execute("select count(*) from alerts.report").fetchone() == (0,)


async def _open(house: str, *, count: int) -> list[tuple[object, ...]]:
    """Wait until so many alerts are open in the house; return them."""

    async def look() -> list[list[tuple[object, ...]]]:
        with psycopg.connect(house) as connection:
            connection.execute("select alerts.fold()")
            found = connection.execute(
                "select key, room, severity, title from alerts.alert where cleared_at is null"
                " order by key"
            ).fetchall()
        return [found] if len(found) == count else []

    return (await wait_until_async(look, what=f"{count} open alerts"))[0]
