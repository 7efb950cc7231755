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


class Notices:
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
def notices(database: str, connect: Connect) -> Notices:
    return Notices(connect(database, autocommit=True), DatabaseClock(database, "alerts"))


def test_nothing_is_told_before_the_group_window_has_passed(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(4)
    notices.raise_("b")
    assert notices.tell() == []
    notices.wait(1.1)
    assert notices.tell() == [("raised", "a"), ("raised", "b")]
    assert notices.tell() == []


def test_a_lasting_storm_is_told_in_notices_ever_further_apart(notices: Notices) -> None:
    told_after = []
    for second in range(0, 3600, 15):
        notices.raise_(f"storm/{second}")
        notices.wait(15)
        if notices.tell():
            told_after.append(second + 15)
    assert len(told_after) <= 7
    gaps = [later - former for former, later in pairwise(told_after)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(QUIET.total_seconds(), abs=30)


def test_after_a_time_of_peace_news_is_quick_again(notices: Notices) -> None:
    for number in range(4):
        notices.raise_(f"k{number}")
        notices.wait(1000)
        notices.tell()
    notices.wait(4 * QUIET.total_seconds())
    notices.raise_("late")
    notices.wait(5.1)
    assert notices.tell() == [("raised", "late")]


def test_an_all_clear_is_told_once_and_only_of_what_was_told(notices: Notices) -> None:
    notices.raise_("told")
    notices.wait(6)
    assert notices.tell() == [("raised", "told")]
    notices.raise_("brief")
    notices.clear("brief")
    notices.clear("told")
    notices.clear("told")
    notices.wait(60)
    assert notices.tell() == [("cleared", "told")]
    notices.wait(10_000)
    assert notices.tell() == []
    notices.raise_("told")
    notices.wait(6)
    assert notices.tell() == [("raised", "told")]


def test_while_a_notice_is_not_sent_what_follows_shares_the_next(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(6)
    assert notices.compose() is not None
    for number in range(3):
        notices.raise_(f"b{number}")
        notices.wait(1000)
        assert notices.compose() is None
    notices.clear("a")
    first = notices.take()
    assert first is not None
    notices.call("sent", first["id"])
    notices.wait(1000)
    assert notices.tell() == [("raised", f"b{number}") for number in range(3)] + [("cleared", "a")]


@pytest.mark.both_versions
def test_a_digest_reminds_of_what_is_open_and_not_acknowledged(notices: Notices) -> None:
    notices.raise_("seen")
    notices.raise_("unseen")
    notices.wait(6)
    notices.tell()
    assert notices.call("ack", "seen", "me")[0]["ack"] == 1
    assert notices.call("ack", "seen", "me")[0]["ack"] == 0
    assert notices.compose(digest=DAY) is None
    notices.wait(DAY.total_seconds())
    assert notices.compose(digest=DAY) is not None
    taken = notices.take()
    assert taken is not None
    assert taken["kind"] == "digest"
    assert [item["key"] for item in taken["items"]] == ["unseen"]  # type: ignore[attr-defined]
    notices.call("sent", taken["id"])
    assert notices.compose(digest=DAY) is None


def test_silence_is_broken_only_by_a_heartbeat(notices: Notices) -> None:
    notices.wait(2 * DAY.total_seconds())
    assert notices.compose(digest=DAY) is None
    notices.wait(2 * DAY.total_seconds())
    assert notices.compose(digest=DAY, heartbeat=True) is not None


def test_a_notice_has_one_holder_until_its_lease_ends(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(6)
    notices.compose()
    first = notices.take()
    assert first is not None
    assert notices.take() is None
    notices.wait(LEASE.total_seconds() + 1)
    second = notices.take()
    assert second is not None
    assert second["id"] == first["id"]
    assert second["token"] != first["token"]
    # The former holder has no say in failure, but what it sent was sent.
    assert notices.fail(first) is None
    notices.call("sent", first["id"])
    assert notices.fail(second) is None
    assert notices.take() is None


def test_pauses_between_attempts_grow_and_stay_bounded(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(6)
    notices.compose()
    pauses = []
    for _ in range(12):
        taken = notices.take()
        assert taken is not None
        assert notices.fail(taken) == "waiting"
        row = notices.connection.execute(
            "select due_at - alerts.now() from alerts.notice"
        ).fetchone()
        assert row is not None
        pauses.append(row[0].total_seconds())
        assert notices.take() is None
        notices.wait(row[0].total_seconds() + 1)
    for number, pause in enumerate(pauses):
        longest = min(5 * 2**number, 900)
        assert longest / 2 - 1 <= pause <= longest


@pytest.mark.both_versions
def test_an_old_notice_is_given_up_and_can_be_retried(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(6)
    notices.compose()
    notices.wait(4 * DAY.total_seconds())
    taken = notices.take()
    assert taken is not None
    assert notices.fail(taken) == "given_up"
    assert notices.take() is None
    assert notices.call("retry", int(str(taken["id"])))[0]["retry"]
    assert notices.take() is not None
    assert not notices.call("retry", 0)[0]["retry"]


def test_a_clock_that_is_set_back_keeps_nothing_waiting(notices: Notices) -> None:
    notices.raise_("a")
    notices.wait(6)
    assert notices.tell() == [("raised", "a")]
    notices.raise_("b")
    notices.wait(60)
    notices.compose()
    taken = notices.take()
    assert taken is not None
    assert notices.fail(taken) == "waiting"
    notices.wait(-DAY.total_seconds())
    again = notices.take()
    assert again is not None
    notices.wait(-DAY.total_seconds())
    assert notices.take() is not None
    notices.call("sent", again["id"])
    notices.raise_("c")
    notices.wait(6)
    assert notices.tell() == [("raised", "c")]


@pytest.mark.both_versions
def test_a_channel_that_is_not_configured_any_more_is_left_alone(notices: Notices) -> None:
    notices.call("set_channels", [], [], [])
    notices.raise_("a")
    notices.wait(60)
    assert notices.compose() is None
    with pytest.raises(ChannelNotFound):
        notices.call("test", "mail")


@pytest.mark.both_versions
def test_old_episodes_and_notices_are_forgotten_but_not_an_untold_all_clear(
    notices: Notices,
) -> None:
    for key in ("done", "untold"):
        notices.raise_(key)
    notices.raise_("open")
    notices.wait(6)
    notices.tell()
    notices.clear("done")
    notices.wait(60)
    notices.tell()
    notices.clear("untold")
    notices.wait(100 * DAY.total_seconds())
    notices.call("fold")
    assert notices.call("purge", timedelta(days=90)) == [{"purge": 3}]
    keys = notices.connection.execute("select key from alerts.alert order by key").fetchall()
    assert keys == [("open",), ("untold",)]


def test_two_sessions_that_compose_at_once_write_one_notice(
    notices: Notices, database: str, connect: Connect
) -> None:
    notices.raise_("a")
    notices.wait(6)
    first, second = connect(database), connect(database)
    second.execute("set lock_timeout = '300ms'")
    made = rows_of(first, "compose", "mail", GROUP, QUIET, None, False)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        rows_of(second, "compose", "mail", GROUP, QUIET, None, False)
    second.rollback()
    first.commit()
    assert made[0]["compose"] is not None
    assert notices.compose() is None


def test_a_muted_problem_is_silent_until_the_mute_ends(notices: Notices) -> None:
    until = notices.clock.now() + timedelta(hours=1)
    notices.call("mute", "a", until, "known", "maria")
    notices.raise_("a")
    notices.raise_("b")
    notices.wait(6)
    assert notices.tell() == [("raised", "b")]
    # It is solved and comes back: still silent, also in the digest.
    notices.clear("a")
    notices.raise_("a")
    notices.wait(3000)
    assert notices.tell() == []
    assert notices.compose(digest=timedelta(seconds=1)) is not None
    taken = notices.take()
    assert taken is not None
    assert [item["key"] for item in taken["items"]] == ["b"]  # type: ignore[attr-defined]
    notices.call("sent", taken["id"])
    notices.wait(700)
    assert notices.tell() == [("raised", "a")]
    # An all-clear is sent although it is muted again: the alert was sent.
    notices.call("mute", "a", until + timedelta(hours=1), "known", "maria")
    notices.clear("a")
    notices.wait(3600)
    assert notices.tell() == [("cleared", "a")]


def test_a_mute_is_refused_without_a_reason_and_ended_by_hand(notices: Notices) -> None:
    until = notices.clock.now() + timedelta(hours=1)
    with pytest.raises(AlertsError, match="reason"):
        notices.call("mute", "a", until, "", "maria")
    notices.connection.rollback()
    notices.call("set_channels", ["mail"], ["email"], ["warning"])
    assert notices.call("mute", "a", until, "known", "maria") == [{"mute": False}]
    assert notices.call("mute", "a", None, None, None) == [{"mute": True}]
    notices.raise_("a")
    notices.wait(6)
    assert notices.tell() == [("raised", "a")]


def test_a_problem_is_owned_and_its_alert_acknowledged(notices: Notices) -> None:
    notices.raise_("a")
    for key in ("a", "bus/dead/orders/default"):
        notices.call("own", key, "maria")
    (alert,) = notices.connection.execute("select key, acked_by from alerts.alert").fetchall()
    assert alert == ("a", "maria")
    owned = "select key, owner from alerts.handled order by key"
    found = notices.connection.execute(owned).fetchall()
    assert found == [("a", "maria"), ("bus/dead/orders/default", "maria")]
    notices.call("own", "a", None)
    assert notices.connection.execute("select acked_by from alerts.alert").fetchall() == [(None,)]
    # What was neither owned nor muted for long is forgotten, unless its alert is open.
    notices.wait(2 * DAY.total_seconds())
    notices.call("purge", DAY)
    assert notices.connection.execute(owned).fetchall() == []
