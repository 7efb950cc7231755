"""Reports of other databases reach the one whose sender tells people."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from postroad.alerts import AlertRelay, clear_alert, raise_alert
from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer, wait_until_async

QUICK = timedelta(milliseconds=20)


async def test_what_is_raised_and_cleared_elsewhere_is_known_in_the_house(
    server: TestServer,
) -> None:
    with server.clone(*SCHEMAS) as target, server.clone(*SCHEMAS) as elsewhere:
        with psycopg.connect(elsewhere) as connection:
            for key in ("a", "b"):
                raise_alert(connection, key, room="coordination", severity="error", title=key)
        async with AlertRelay([elsewhere, target], target, interval=QUICK) as relay:
            assert [row[0] for row in await _open(target, count=2)] == ["a", "b"]
            with psycopg.connect(elsewhere) as connection:
                clear_alert(connection, "a")
            assert await _open(target, count=1) == [("b", "coordination", "error", "b")]
            with psycopg.connect(elsewhere) as connection:
                clear_alert(connection, "b")
            assert await _open(target, count=0) == []
            assert relay.is_running
        with psycopg.connect(elsewhere) as connection:
            assert connection.execute("select count(*) from alerts.report").fetchone() == (0,)


async def test_a_database_that_is_away_holds_up_nobody_elses_reports(
    server: TestServer,
) -> None:
    with server.clone(*SCHEMAS) as target, server.clone(*SCHEMAS) as elsewhere:
        with psycopg.connect(elsewhere) as connection:
            raise_alert(connection, "a", room="coordination", severity="error", title="a")
        away = server.dsn("there_is_no_such_database")
        async with AlertRelay([away, elsewhere], target, interval=QUICK):
            assert [row[0] for row in await _open(target, count=1)] == ["a"]


async def test_a_clear_does_not_overtake_its_raise_where_two_relays_run(
    server: TestServer,
) -> None:
    with (
        server.clone(*SCHEMAS) as target,
        server.clone(*SCHEMAS) as elsewhere,
        psycopg.connect(elsewhere, autocommit=True) as there,
        psycopg.connect(target, autocommit=True) as here,
    ):
        here.execute(SLOW_RAISES)
        here.execute("select pg_advisory_lock(42)")
        raise_alert(there, "a", room="coordination", severity="error", title="a")
        async with AlertRelay([elsewhere], target, interval=QUICK):
            await wait_until_async(lambda: _rows(here, STUCK), what="a raise under way")
            clear_alert(there, "a")
            other = AlertRelay([elsewhere], target, interval=QUICK)
            other.signals.listen("carried")
            async with other:
                await other.signals.wait("carried")
                here.execute("select alerts.fold()")
                here.execute("select pg_advisory_unlock(42)")
                await wait_until_async(lambda: _rows(there, EMPTY), what="all reports carried")
        assert await _open(target, count=0) == []
        assert await _rows(here, "select key from alerts.alert") == [("a",)]


# A raise takes its time, a clear does not.
SLOW_RAISES = """
create function wait_for_42() returns trigger language plpgsql as
$$ begin perform pg_advisory_xact_lock_shared(42); return new; end $$;
create trigger slow before insert on alerts.report for each row when (new.is_raise)
execute function wait_for_42();
"""
STUCK = """
select pid from pg_locks where locktype = 'advisory' and not granted
and database = (select oid from pg_database where datname = current_database())
"""
EMPTY = "select 1 where not exists (select from alerts.report)"


async def _rows(connection: psycopg.Connection[Any], query: str) -> list[tuple[object, ...]]:
    return connection.execute(query.encode()).fetchall()


async def _open(target: str, *, count: int) -> list[tuple[object, ...]]:
    """Wait until so many alerts are open in the target database; return them."""

    async def look() -> list[list[tuple[object, ...]]]:
        with psycopg.connect(target) as connection:
            connection.execute("select alerts.fold()")
            found = connection.execute(
                "select key, room, severity, title from alerts.alert where cleared_at is null"
                " order by key"
            ).fetchall()
        return [found] if len(found) == count else []

    return (await wait_until_async(look, what=f"{count} open alerts"))[0]
