"""Notices: when one is written, what it holds, who may send it. On a clock that tests move."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import psycopg
import pytest
from psycopg import Connection, Cursor
from psycopg.rows import dict_row

from postroad.alerts import AlertsError, ChannelNotFound, clear_alert, raise_alert
from postroad.postgres.calls import invocation
from postroad.postgres.errors import raised_by
from postroad.testing import DatabaseClock
from tests.fixtures.postgres import Connect

GROUP, QUIET, DAY = timedelta(seconds=5), timedelta(minutes=15), timedelta(days=1)
LEASE = timedelta(minutes=2)
BACKOFF, BACKOFF_MAX = timedelta(seconds=5), timedelta(minutes=15)


def rows_of(connection: Connection, function: str, *parameters: object) -> list[dict[str, object]]:
    text = f"select * from {invocation(f'alerts.{function}', len(parameters))}"
    try:
        return Cursor(connection, row_factory=dict_row).execute(text, parameters).fetchall()
    except psycopg.Error as failure:
        raise (raised_by(AlertsError, failure) or failure) from failure


class Desk:
    """One channel, and the calls of a sender."""

    def __init__(self, connection: Connection, clock: DatabaseClock) -> None:
        self.connection = connection
        self.clock = clock
        self.call("set_channels", ["mail"], ["email"], ["warning"])

    def call(self, function: str, *parameters: object) -> list[dict[str, object]]:
        return rows_of(self.connection, function, *parameters)

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def raise_(self, key: str, severity: str = "error") -> None:
        raise_alert(self.connection, key, room="t", severity=severity, title=f"title {key}")

    def clear(self, key: str) -> None:
        clear_alert(self.connection, key)

    def compose(self, *, digest: timedelta | None = None, heartbeat: bool = False) -> object:
        return self.call("compose", "mail", GROUP, QUIET, digest, heartbeat)[0]["compose"]

    def take(self) -> dict[str, object] | None:
        rows = self.call("take", "me", ["mail"], LEASE, BACKOFF_MAX, None)
        return rows[0] if rows else None

    def fail(self, notice: dict[str, object]) -> object:
        keys = (notice["id"], notice["token"], "no", BACKOFF, BACKOFF_MAX, timedelta(days=3))
        return self.call("failed", *keys)[0]["failed"]

    def tell(self) -> list[tuple[str, str]]:
        """Write and send the next notice; return what it said."""
        if self.compose() is None:
            return []
        taken = self.take()
        assert taken is not None
        self.call("sent", taken["id"])
        items = taken["items"]
        assert isinstance(items, list)
        return [(item["what"], item["key"]) for item in items]


@pytest.fixture
def desk(database: str, connect: Connect) -> Desk:
    return Desk(connect(database, autocommit=True), DatabaseClock(database, "alerts"))


def test_nothing_is_told_before_the_group_window_has_passed(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(4)
    desk.raise_("b")
    assert desk.tell() == []
    desk.wait(1.1)
    assert desk.tell() == [("raised", "a"), ("raised", "b")]
    assert desk.tell() == []


def test_a_lasting_storm_is_told_in_notices_ever_further_apart(desk: Desk) -> None:
    told_after = []
    for second in range(0, 3600, 15):
        desk.raise_(f"storm/{second}")
        desk.wait(15)
        if desk.tell():
            told_after.append(second + 15)
    assert len(told_after) <= 7
    gaps = [later - former for former, later in pairwise(told_after)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(QUIET.total_seconds(), abs=30)


def test_after_a_time_of_peace_news_is_quick_again(desk: Desk) -> None:
    for number in range(4):
        desk.raise_(f"k{number}")
        desk.wait(1000)
        desk.tell()
    desk.wait(4 * QUIET.total_seconds())
    desk.raise_("late")
    desk.wait(5.1)
    assert desk.tell() == [("raised", "late")]


def test_an_all_clear_is_told_once_and_only_of_what_was_told(desk: Desk) -> None:
    desk.raise_("told")
    desk.wait(6)
    assert desk.tell() == [("raised", "told")]
    desk.raise_("brief")
    desk.clear("brief")
    desk.clear("told")
    desk.clear("told")
    desk.wait(60)
    assert desk.tell() == [("cleared", "told")]
    desk.wait(10_000)
    assert desk.tell() == []
    desk.raise_("told")
    desk.wait(6)
    assert desk.tell() == [("raised", "told")]


def test_while_a_notice_is_not_sent_what_follows_shares_the_next(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(6)
    assert desk.compose() is not None
    for number in range(3):
        desk.raise_(f"b{number}")
        desk.wait(1000)
        assert desk.compose() is None
    desk.clear("a")
    first = desk.take()
    assert first is not None
    desk.call("sent", first["id"])
    desk.wait(1000)
    assert desk.tell() == [("raised", f"b{number}") for number in range(3)] + [("cleared", "a")]


@pytest.mark.both_versions
def test_a_digest_reminds_of_what_is_open_and_not_acknowledged(desk: Desk) -> None:
    desk.raise_("seen")
    desk.raise_("unseen")
    desk.wait(6)
    desk.tell()
    assert desk.call("ack", "seen", "me")[0]["ack"] == 1
    assert desk.call("ack", "seen", "me")[0]["ack"] == 0
    assert desk.compose(digest=DAY) is None
    desk.wait(DAY.total_seconds())
    assert desk.compose(digest=DAY) is not None
    taken = desk.take()
    assert taken is not None
    assert taken["kind"] == "digest"
    assert [item["key"] for item in taken["items"]] == ["unseen"]  # type: ignore[attr-defined]
    desk.call("sent", taken["id"])
    assert desk.compose(digest=DAY) is None


def test_silence_is_broken_only_by_a_heartbeat(desk: Desk) -> None:
    desk.wait(2 * DAY.total_seconds())
    assert desk.compose(digest=DAY) is None
    desk.wait(2 * DAY.total_seconds())
    assert desk.compose(digest=DAY, heartbeat=True) is not None


def test_a_notice_has_one_holder_until_its_lease_ends(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(6)
    desk.compose()
    first = desk.take()
    assert first is not None
    assert desk.take() is None
    desk.wait(LEASE.total_seconds() + 1)
    second = desk.take()
    assert second is not None
    assert second["id"] == first["id"]
    assert second["token"] != first["token"]
    # The former holder has no say in failure, but what it sent was sent.
    assert desk.fail(first) is None
    desk.call("sent", first["id"])
    assert desk.fail(second) is None
    assert desk.take() is None


def test_pauses_between_attempts_grow_and_stay_bounded(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(6)
    desk.compose()
    pauses = []
    for _ in range(12):
        taken = desk.take()
        assert taken is not None
        assert desk.fail(taken) == "waiting"
        row = desk.connection.execute("select due_at - alerts.now() from alerts.notice").fetchone()
        assert row is not None
        pauses.append(row[0].total_seconds())
        assert desk.take() is None
        desk.wait(row[0].total_seconds() + 1)
    for number, pause in enumerate(pauses):
        longest = min(5 * 2**number, 900)
        assert longest / 2 - 1 <= pause <= longest


@pytest.mark.both_versions
def test_an_old_notice_is_given_up_and_can_be_retried(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(6)
    desk.compose()
    desk.wait(4 * DAY.total_seconds())
    taken = desk.take()
    assert taken is not None
    assert desk.fail(taken) == "given_up"
    assert desk.take() is None
    assert desk.call("retry", int(str(taken["id"])))[0]["retry"]
    assert desk.take() is not None
    assert not desk.call("retry", 0)[0]["retry"]


def test_a_clock_that_is_set_back_keeps_nothing_waiting(desk: Desk) -> None:
    desk.raise_("a")
    desk.wait(6)
    assert desk.tell() == [("raised", "a")]
    desk.raise_("b")
    desk.wait(60)
    desk.compose()
    taken = desk.take()
    assert taken is not None
    assert desk.fail(taken) == "waiting"
    desk.wait(-DAY.total_seconds())
    again = desk.take()
    assert again is not None
    desk.wait(-DAY.total_seconds())
    assert desk.take() is not None
    desk.call("sent", again["id"])
    desk.raise_("c")
    desk.wait(6)
    assert desk.tell() == [("raised", "c")]


@pytest.mark.both_versions
def test_a_channel_that_is_not_configured_any_more_is_left_alone(desk: Desk) -> None:
    desk.call("set_channels", [], [], [])
    desk.raise_("a")
    desk.wait(60)
    assert desk.compose() is None
    with pytest.raises(ChannelNotFound):
        desk.call("test", "mail")


@pytest.mark.both_versions
def test_old_episodes_and_notices_are_forgotten_but_not_an_untold_all_clear(desk: Desk) -> None:
    for key in ("done", "untold"):
        desk.raise_(key)
    desk.raise_("open")
    desk.wait(6)
    desk.tell()
    desk.clear("done")
    desk.wait(60)
    desk.tell()
    desk.clear("untold")
    desk.wait(100 * DAY.total_seconds())
    desk.call("fold")
    assert desk.call("purge", timedelta(days=90)) == [{"purge": 3}]
    keys = desk.connection.execute("select key from alerts.alert order by key").fetchall()
    assert keys == [("open",), ("untold",)]


def test_two_sessions_that_compose_at_once_write_one_notice(
    desk: Desk, database: str, connect: Connect
) -> None:
    desk.raise_("a")
    desk.wait(6)
    first, second = connect(database), connect(database)
    second.execute("set lock_timeout = '300ms'")
    made = rows_of(first, "compose", "mail", GROUP, QUIET, None, False)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        rows_of(second, "compose", "mail", GROUP, QUIET, None, False)
    second.rollback()
    first.commit()
    assert made[0]["compose"] is not None
    assert desk.compose() is None


def test_a_muted_problem_is_silent_until_the_mute_ends(desk: Desk) -> None:
    until = desk.clock.now() + timedelta(hours=1)
    desk.call("mute", "a", until, "known", "maria")
    desk.raise_("a")
    desk.raise_("b")
    desk.wait(6)
    assert desk.tell() == [("raised", "b")]
    # It is solved and comes back: still silent, also in the digest.
    desk.clear("a")
    desk.raise_("a")
    desk.wait(3000)
    assert desk.tell() == []
    assert desk.compose(digest=timedelta(seconds=1)) is not None
    taken = desk.take()
    assert taken is not None
    assert [item["key"] for item in taken["items"]] == ["b"]  # type: ignore[attr-defined]
    desk.call("sent", taken["id"])
    desk.wait(700)
    assert desk.tell() == [("raised", "a")]
    # An all-clear is sent although it is muted again: the alert was sent.
    desk.call("mute", "a", until + timedelta(hours=1), "known", "maria")
    desk.clear("a")
    desk.wait(3600)
    assert desk.tell() == [("cleared", "a")]


def test_a_mute_is_refused_without_a_reason_and_ended_by_hand(desk: Desk) -> None:
    until = desk.clock.now() + timedelta(hours=1)
    with pytest.raises(AlertsError, match="reason"):
        desk.call("mute", "a", until, "", "maria")
    desk.connection.rollback()
    desk.call("set_channels", ["mail"], ["email"], ["warning"])
    assert desk.call("mute", "a", until, "known", "maria") == [{"mute": False}]
    assert desk.call("mute", "a", None, None, None) == [{"mute": True}]
    desk.raise_("a")
    desk.wait(6)
    assert desk.tell() == [("raised", "a")]


def test_a_problem_is_owned_and_its_alert_acknowledged(desk: Desk) -> None:
    desk.raise_("a")
    for key in ("a", "bus/dead/orders/default"):
        desk.call("own", key, "maria")
    (alert,) = desk.connection.execute("select key, acked_by from alerts.alert").fetchall()
    assert alert == ("a", "maria")
    owned = "select key, owner from alerts.handled order by key"
    found = desk.connection.execute(owned).fetchall()
    assert found == [("a", "maria"), ("bus/dead/orders/default", "maria")]
    desk.call("own", "a", None)
    assert desk.connection.execute("select acked_by from alerts.alert").fetchall() == [(None,)]
    # What was neither owned nor muted for long is forgotten, unless its alert is open.
    desk.wait(2 * DAY.total_seconds())
    desk.call("purge", DAY)
    assert desk.connection.execute(owned).fetchall() == []
