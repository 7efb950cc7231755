"""Reports become episodes: grouped by key, counted, cleared once."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import Connection

from postroad.alerts import InvalidAlert, clear_alert, raise_alert
from tests.fixtures.postgres import Connect

pytestmark = pytest.mark.both_versions


def listed(connection: Connection, *, is_open: bool = True) -> list[tuple[object, ...]]:
    return connection.execute(
        "select key, severity, title, count, cleared_at is not null from alerts.list(%s)",
        (is_open,),
    ).fetchall()


def say(connection: Connection, key: str = "k", severity: str = "error", title: str = "t") -> None:
    raise_alert(connection, key, room="test", severity=severity, title=title, text="b")


def test_the_same_key_counts_up_and_is_one_alert(connection: Connection) -> None:
    for number in range(3):
        say(connection, title=f"t{number}")
    say(connection, "other")
    assert set(listed(connection)) == {
        ("k", "error", "t2", 3, False),
        ("other", "error", "t", 1, False),
    }


def test_a_report_that_rolls_back_was_never_made(connection: Connection) -> None:
    with connection.transaction() as transaction:
        say(connection)
        raise psycopg.Rollback(transaction)
    assert listed(connection) == []


def test_clearing_ends_an_episode_and_the_next_report_begins_another(
    connection: Connection,
) -> None:
    say(connection)
    clear_alert(connection, "k")
    clear_alert(connection, "k")
    say(connection)
    say(connection)
    assert listed(connection) == [("k", "error", "t", 2, False)]
    assert listed(connection, is_open=False) == [
        ("k", "error", "t", 2, False),
        ("k", "error", "t", 1, True),
    ]


def test_clearing_what_was_not_raised_does_nothing(connection: Connection) -> None:
    clear_alert(connection, "k")
    assert listed(connection, is_open=False) == []


def test_an_episode_is_as_serious_as_its_worst_report(connection: Connection) -> None:
    for severity in ("warning", "critical", "info"):
        say(connection, severity=severity)
        listed(connection)
    assert listed(connection) == [("k", "critical", "t", 3, False)]


@pytest.mark.parametrize(
    ("key", "severity", "title"),
    [("", "error", "t"), ("k", "loud", "t"), ("k", "error", ""), ("x" * 201, "error", "t")],
)
def test_half_an_alert_is_refused(
    connection: Connection, key: str, severity: str, title: str
) -> None:
    with pytest.raises(InvalidAlert) as refused:
        say(connection, key, severity, title)
    assert refused.value.code == "MA001"
    assert isinstance(refused.value.__cause__, psycopg.Error)


def test_two_transactions_report_the_same_keys_in_any_order_without_waiting(
    database: str, connect: Connect
) -> None:
    first, second = connect(database), connect(database)
    for session in (first, second):
        session.execute("set lock_timeout = '2s'")
    say(first, "a")
    say(second, "b")
    say(first, "b")
    say(second, "a")
    first.commit()
    second.commit()
    assert [row[3] for row in listed(first)] == [2, 2]


def test_a_storm_of_reports_is_one_alert(connection: Connection) -> None:
    connection.execute(
        "select alerts.raise('storm', 'test', 'error', 'n ' || n) from generate_series(1, 10000) n"
    )
    assert listed(connection) == [("storm", "error", "n 10000", 10000, False)]


def test_no_function_is_for_everybody(connection: Connection) -> None:
    assert (
        connection.execute(
            "select p.oid::regprocedure::text from pg_proc p"
            " where p.pronamespace = 'alerts'::regnamespace"
            " and has_function_privilege('public', p.oid, 'execute')"
        ).fetchall()
        == []
    )
