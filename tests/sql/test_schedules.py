"""Schedules: each planned run is posted once by its policy, however many sessions maintain."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection, Connection

from postroad.bus.resources import SCHEDULES
from postroad.cli.components import SCHEMAS
from postroad.testing import DatabaseClock, TestServer, wait_until, wait_until_blocked
from tests.chaos.bridge_load import crash
from tests.fixtures.postgres import Connect, InThread
from tests.sql.calls import column, maintain, one, post, refused, rows, shift_clock, take
from tests.sql.test_next_run import CHANGES, expected
from tests.sql.test_security import Login, login, owned

__all__ = ["login", "owned"]

NOON = datetime(2030, 7, 1, 12, 0, 0, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


def schedule(connection: Connection, timing: str, name: str = "s", **more: object) -> datetime:
    named = "".join(f", {key} => %({key})s" for key in more)
    found = connection.execute(
        f"select mbus.schedule(%(name)s, %(timing)s, 'q', 'n=>1'{named})".encode(),
        {"name": name, "timing": timing, **more},
    ).fetchone()
    assert found is not None
    return found[0]


def at(connection: Connection, moment: datetime) -> None:
    """Let this be the time of the bus."""
    shift_clock(connection, moment - one(connection, "select clock_timestamp()"))


def stand_still(connection: Connection, moment: datetime) -> None:
    connection.execute(
        "create or replace function mbus.now() returns timestamptz language sql volatile"
        f" parallel safe as $$ select '{moment.isoformat()}'::timestamptz $$".encode()
    )


def planned(connection: Connection) -> list[datetime]:
    """Maintain, and take what was posted: for which times."""
    maintain(connection, None)
    query = "select headers -> 'planned_at' from mbus.consumen_q_by_default(1000)"
    return [datetime.fromisoformat(text) for text in column(connection, query)]


@pytest.fixture
def noon(bus: Connection) -> datetime:
    """Let it be noon in the summer."""
    at(bus, NOON)
    return NOON


@pytest.mark.parametrize("kind", ["text", "varchar", "name", "unknown"])
def test_a_text_of_any_type_is_scheduled(bus: Connection, kind: str) -> None:
    bus.execute(f"select mbus.schedule('s', '@daily', 'q', 'n=>1'::{kind})".encode())
    bus.execute("select mbus.run_now('s')")
    assert one(bus, "select data -> 'n' from mbus.consume_q_by_default()") == "1"


@pytest.mark.both_versions
def test_a_run_is_posted_when_it_is_due_and_once(bus: Connection, noon: datetime) -> None:
    assert schedule(bus, "30 12 * * *", headers="colour=>red", properties="a=>b") == (
        noon + 30 * MINUTE
    )
    assert planned(bus) == []
    at(bus, noon + 30 * MINUTE)
    maintain(bus, None)
    maintain(bus, None)
    [(data, headers, properties)] = rows(
        bus, "select data::text, headers, properties::text from mbus.consumen_q_by_default(9)"
    )
    assert (data, properties) == ('"n"=>"1"', '"a"=>"b"')
    assert '"colour"=>"red"' in headers
    assert '"schedule"=>"s"' in headers
    assert '"planned_at"=>"2030-07-01T12:30:00Z"' in headers
    assert one(bus, "select next_at from mbus.schedules") == noon + 30 * MINUTE + DAY


def test_an_interval_runs_at_whole_steps_from_its_creation(bus: Connection, noon: datetime) -> None:
    assert schedule(bus, "90 seconds") == noon + timedelta(seconds=90)
    at(bus, noon + timedelta(seconds=100))
    assert planned(bus) == [noon + timedelta(seconds=90)]
    assert one(bus, "select next_at from mbus.schedules") == noon + timedelta(seconds=180)


@pytest.mark.parametrize(
    ("missed", "late", "posted"),
    [
        ("skip", timedelta(seconds=30), [1]),
        # The last run is due at this moment.
        ("skip", 3 * HOUR, [4]),
        ("skip", 3 * HOUR + 2 * MINUTE, []),
        ("once", 3 * HOUR, [1]),
        ("all", 3 * HOUR, [1, 2, 3, 4]),
        # Only of the last 24 hours.
        ("all", 48 * HOUR, [*range(26, 50)]),
    ],
)
def test_missed_runs_are_posted_by_policy(
    bus: Connection, noon: datetime, missed: str, late: timedelta, posted: list[int]
) -> None:
    schedule(bus, "@hourly", missed=missed)
    at(bus, noon + HOUR + late)
    assert planned(bus) == [noon + hours * HOUR for hours in posted]
    next_at = one(bus, "select next_at from mbus.schedules")
    assert noon + HOUR + late < next_at <= noon + 2 * HOUR + late
    assert planned(bus) == []


@st.composite
def outages(draw: st.DrawFn) -> tuple[str, datetime, list[timedelta]]:
    """Draw a zone, a moment within a day of a change of its clock, and moves of the bus's clock."""
    zone = draw(st.sampled_from(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]))
    change = draw(st.sampled_from(CHANGES[zone]))
    start = change - timedelta(seconds=draw(st.integers(0, 86_400)))
    minutes = st.one_of(st.integers(-180, 180), st.integers(0, 1_800))
    seconds = draw(st.lists(st.tuples(minutes, st.integers(0, 59)), min_size=1, max_size=6))
    return zone, start, [timedelta(minutes=minute, seconds=second) for minute, second in seconds]


@settings(
    max_examples=500 if os.environ.get("POSTROAD_STRESS") else 40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from(["30 2 * * *", "*/30 * * * *", "0 1-3 * * *", "15 */2 * * *", "0 0 * * *"]),
    st.sampled_from(["skip", "once", "all"]),
    outages(),
)
@example("*/30 * * * *", "skip", ("UTC", NOON, [timedelta(minutes=90, seconds=10)]))
@example("*/30 * * * *", "skip", ("UTC", NOON, [timedelta(minutes=91)]))
@example("*/30 * * * *", "all", ("UTC", NOON, [timedelta(hours=24, minutes=30)]))
@pytest.mark.timeout(600)
def test_runs_are_those_of_croniter_by_policy_over_outages_and_changes_of_the_clock(
    bus: Connection, timing: str, missed: str, outage: tuple[str, datetime, list[timedelta]]
) -> None:
    """Between two runs of maintenance the bus's clock moves on, or is put back."""
    zone, now, moves = outage
    with bus.transaction(force_rollback=True):
        stand_still(bus, now)
        planned_at = schedule(bus, timing, timezone=zone, missed=missed)
        maintained = now
        for move in moves:
            now += move
            stand_still(bus, now)
            due: list[datetime] = []
            if now > maintained:
                maintained = now
                while planned_at <= now:
                    due.append(planned_at)
                    planned_at = expected(timing, zone, planned_at)
            if missed == "all":
                wanted = [each for each in due if each >= now - DAY]
            else:
                wanted = [each for each in due if missed == "once" or each >= now - MINUTE][:1]
            # Repeated, as another session does.
            assert planned(bus) + planned(bus) == wanted
            assert one(bus, "select next_at from mbus.schedules") == planned_at


def test_many_missed_runs_are_posted_in_several_calls(bus: Connection, noon: datetime) -> None:
    schedule(bus, "1 second", missed="all")
    at(bus, noon + timedelta(seconds=250))
    found = [planned(bus) for _ in range(4)]
    assert [len(each) for each in found][:2] == [100, 100]
    # The clock of the test goes on.
    times = [each for some in found for each in some]
    assert times[:250] == [noon + timedelta(seconds=n) for n in range(1, 251)]


def test_a_clock_that_is_put_back_repeats_nothing(bus: Connection, noon: datetime) -> None:
    schedule(bus, "@hourly")
    at(bus, noon + HOUR)
    assert planned(bus) == [noon + HOUR]
    at(bus, noon)
    assert planned(bus) == []
    at(bus, noon + HOUR)
    assert planned(bus) == []
    at(bus, noon + 2 * HOUR)
    assert planned(bus) == [noon + 2 * HOUR]


def test_runs_follow_the_local_clock_over_its_changes(bus: Connection) -> None:
    spring = datetime(2031, 3, 29, 12, 0, tzinfo=UTC)
    at(bus, spring)
    schedule(bus, "30 2 * * *", timezone="Europe/Berlin", missed="all")
    at(bus, spring + 3 * DAY)
    maintain(bus, None)
    at(bus, datetime(2031, 4, 1, 12, 0, tzinfo=UTC))
    runs = column(bus, "select planned_at from mbus.schedule_run where iid is not null order by 1")
    # 02:30 does not exist on 30 March: it runs at 03:00 of the summer, which is 01:00 UTC.
    assert runs[-1] == datetime(2031, 4, 1, 0, 30, tzinfo=UTC)
    at(bus, spring)
    assert one(bus, "select mbus.next_run('30 2 * * *', 'Europe/Berlin', %s)", spring) == datetime(
        2031, 3, 30, 1, 0, tzinfo=UTC
    )


def test_the_history_has_the_last_hundred_runs(bus: Connection, noon: datetime) -> None:
    schedule(bus, "1 minute", missed="all")
    at(bus, noon + 130 * MINUTE)
    assert len(planned(bus) + planned(bus)) == 130
    assert one(bus, "select count(*) from mbus.schedule_run") == 100
    [(first, last)] = rows(bus, "select min(planned_at), max(planned_at) from mbus.schedule_run")
    assert (first, last) == (noon + 31 * MINUTE, noon + 130 * MINUTE)


def test_a_schedule_is_replaced_and_keeps_its_next_run(bus: Connection, noon: datetime) -> None:
    first = schedule(bus, "10 minutes")
    at(bus, noon + 5 * MINUTE)
    assert schedule(bus, "10 minutes", missed="skip") == first
    assert one(bus, "select missed from mbus.schedules") == "skip"
    assert schedule(bus, "20 minutes") == noon + 25 * MINUTE


def test_a_paused_schedule_posts_nothing_and_makes_nothing_up(
    bus: Connection, noon: datetime
) -> None:
    schedule(bus, "@hourly", missed="all")
    assert one(bus, "select mbus.pause_schedule('s', 'closing', 'olga')")
    assert not one(bus, "select mbus.pause_schedule('s')")
    assert rows(bus, "select state, paused_by, pause_reason, next_at from mbus.schedules") == [
        ("paused", "olga", "closing", None)
    ]
    # A deployment that creates its schedules again does not resume it.
    assert schedule(bus, "@hourly", missed="all") is None
    at(bus, noon + 5 * HOUR)
    assert planned(bus) == []
    assert one(bus, "select mbus.resume_schedule('s')")
    assert not one(bus, "select mbus.resume_schedule('s')")
    assert planned(bus) == []
    at(bus, noon + 6 * HOUR)
    assert planned(bus) == [noon + 6 * HOUR]


def test_a_schedule_is_run_now_even_while_paused(bus: Connection, noon: datetime) -> None:
    schedule(bus, "@daily")
    bus.execute("select mbus.pause_schedule('s')")
    iid = one(bus, "select mbus.run_now('s')")
    assert column(bus, "select iid from mbus.consume('q')") == [iid]
    assert rows(bus, "select outcome, iid from mbus.schedule_run") == [("posted", iid)]


def test_a_schedule_ends_with_unschedule_or_with_its_queue(bus: Connection) -> None:
    schedule(bus, "@daily")
    bus.execute("select mbus.run_now('s')")
    assert one(bus, "select mbus.unschedule('s')")
    assert not one(bus, "select mbus.unschedule('s')")
    schedule(bus, "@daily")
    bus.execute("select mbus.drop_queue('q')")
    assert rows(bus, "select * from mbus.schedules") == []


def test_a_run_that_cannot_be_posted_is_noted_and_the_others_go_on(
    bus: Connection, noon: datetime
) -> None:
    schedule(bus, "@hourly", name="bad")
    schedule(bus, "@hourly", name="good")
    bus.execute("update mbus.schedule set headers = 'priority=>none' where name = 'bad'")
    bus.execute("update mbus.schedule set timezone = 'Gone/Zone' where name = 'good'")
    schedule(bus, "@hourly", name="other")
    at(bus, noon + HOUR)
    assert planned(bus) == [noon + HOUR]
    assert dict(rows(bus, "select schedule, last_outcome from mbus.schedules")) == {
        "bad": "failed",
        "good": "failed",
        "other": "posted",
    }
    # One whose next run is unknown must not be tried twice a second.
    assert dict(rows(bus, "select schedule, state from mbus.schedules"))["good"] == "paused"


@pytest.mark.parametrize(
    ("timing", "more"),
    [
        ("", {}),
        ("* * * *", {}),
        ("60 * * * *", {}),
        ("* * 0 * *", {}),
        ("*/0 * * * *", {}),
        ("5-1 * * * *", {}),
        ("* * * foo *", {}),
        ("* * * * 8", {}),
        ("1,,2 * * * *", {}),
        ("0 0 30 2 *", {}),
        ("* * 31 4 *", {}),
        ("@reboot", {}),
        ("10 milliseconds", {}),
        ("-1 hour", {}),
        ("1 month", {}),
        # Clients cannot represent the year of its next run.
        ("5000000 days", {}),
        ("@daily", {"timezone": "Nowhere/City"}),
        ("@daily", {"missed": "sometimes"}),
        ("@daily", {"name": ""}),
        ("@daily", {"headers": "priority=>none"}),
    ],
)
def test_what_could_not_run_is_refused(bus: Connection, timing: str, more: dict[str, Any]) -> None:
    with refused(bus, "MB012"):
        schedule(bus, timing, **more)
    assert rows(bus, "select * from mbus.schedules") == []


def test_names_of_queues_schedules_and_payloads_are_checked(bus: Connection) -> None:
    with refused(bus, "MB001"):
        one(bus, "select mbus.schedule('s', '@daily', 'nobody', 'x')")
    with refused(bus, "MB011"):
        one(bus, "select mbus.schedule('s', '@daily', 'q', '{}'::jsonb)")
    with refused(bus, "MB011"):
        one(bus, "select mbus.schedule('s', '@daily', 'q', 'no hstore')")
    for call in ("pause_schedule", "resume_schedule", "run_now"):
        with refused(bus, "MB032"):
            one(bus, f"select mbus.{call}('nobody')")
    for payload, data in (("jsonb", '{"n": 1}'), ("text", "x"), ("bytea", r"\x00ff")):
        bus.execute(f"select mbus.create_queue('{payload}_q', payload => '{payload}')".encode())
        one(bus, f"select mbus.schedule('s', '@daily', '{payload}_q', %s::{payload})", data)
        one(bus, "select mbus.run_now('s')")
        shown = one(bus, f"select data::text from mbus.consume_{payload}_q_by_default()")
        assert shown == data


def test_a_schedule_is_for_those_who_may_post_to_its_queue(login: Login) -> None:
    poster, user = login("post_closed"), login("user")
    one(user, "select mbus.schedule('foreign', '@daily', 'open', 'n=>1')")
    one(poster, "select mbus.schedule('own', '@daily', 'closed', 'n=>1')")
    one(poster, "select mbus.run_now('own')")
    for call in (
        "schedule('own', '@daily', 'open', 'n=>1')",
        "schedule('foreign', '@daily', 'closed', 'n=>1')",
        "run_now('foreign')",
        "unschedule('foreign')",
        "pause_schedule('foreign')",
        "resume_schedule('foreign')",
    ):
        with refused(poster, "MB013"):
            one(poster, f"select mbus.{call}")
    assert one(poster, "select mbus.unschedule('own')")


async def test_administrators_who_do_not_own_the_bus_read_schedules_and_runs(
    owned: str, login: Login
) -> None:
    admin = login("admin")
    one(admin, "select mbus.schedule('s', '@daily', 'open', 'n=>1')")
    one(admin, "select mbus.run_now('s')")
    async with await AsyncConnection.connect(owned, autocommit=True) as connection:
        await connection.execute(f"set session authorization {admin.info.user}".encode())
        (shown,) = await SCHEDULES.all(connection)
        assert [run["outcome"] for run in shown["runs"]] == ["posted"]


def test_a_run_is_posted_by_a_session_that_may_not_post(login: Login) -> None:
    poster, user, reader = login("post_closed"), login("user"), login("consume_closed_by_default")
    one(poster, "select mbus.schedule('own', '1 second', 'closed', 'n=>1')")

    def is_posted() -> bool:
        maintain(user, None)
        return take(reader, whose="closed_by_default") != []

    wait_until(is_posted, what="the run is posted")


def test_each_run_is_posted_once_over_kills_of_the_server(own_server: TestServer) -> None:
    with own_server.clone(*SCHEMAS) as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute("select mbus.create_queue('q')")
            schedule(connection, "1 minute", missed="all")
        clock = DatabaseClock(dsn)
        clock.stop()
        for _ in range(3):
            clock.advance(10 * MINUTE)
            connection = psycopg.connect(dsn)
            maintain(connection, None)
            # Before the commit: the runs are posted after the restart.
            crash(own_server)
            connection.close()
            with psycopg.connect(dsn, autocommit=True) as connection:
                maintain(connection, None)
            # After it: nothing is posted again.
            crash(own_server)
        with psycopg.connect(dsn, autocommit=True) as connection:
            maintain(connection, None)
            found = column(
                connection, "select headers -> 'planned_at' from mbus.consumen_q_by_default(1000)"
            )
    assert len(found) == len(set(found)) == 30


def test_of_two_sessions_that_maintain_at_once_one_posts(
    live: str, connect: Connect, clock: DatabaseClock
) -> None:
    first, second = connect(live), connect(live)
    schedule(first, "@hourly")
    first.commit()
    clock.advance(HOUR)
    maintain(first, None)
    # The first has not committed: the second does not wait, and posts nothing.
    maintain(second, None)
    second.commit()
    assert take(second) == []
    first.rollback()
    maintain(second, None)
    second.commit()
    maintain(first, None)
    first.commit()
    assert take(first) == ["1"]


def test_a_run_does_not_deadlock_with_the_drop_of_its_queue(
    live: str, connect: Connect, in_thread: InThread
) -> None:
    owner, observer, session = (connect(live, autocommit=n < 2) for n in range(3))
    schedule(owner, "@hourly")
    # As maintenance does: the row of the schedule, then the post.
    session.execute("select from mbus.schedule for no key update")
    dropping = in_thread(owner.execute, b"select mbus.drop_queue('q')")
    wait_until_blocked(observer, owner.info.backend_pid)
    post(session, 1)
    session.commit()
    dropping.result(30)
    assert rows(observer, "select * from mbus.schedule") == []


def test_many_sessions_maintaining_post_each_run_once(
    live: str, connect: Connect, in_thread: InThread, clock: DatabaseClock
) -> None:
    with connect(live) as connection:
        for number in range(5):
            schedule(connection, "1 minute", name=str(number), missed="all")
    clock.stop()

    def work() -> None:
        with connect(live, autocommit=True) as session:
            for _ in range(20):
                maintain(session, None)

    for _ in range(3):
        clock.advance(20 * MINUTE)
        for done in [in_thread(work) for _ in range(4)]:
            done.result()
    query = (
        "select headers -> 'schedule', headers -> 'planned_at'"
        " from mbus.consumen_q_by_default(1000)"
    )
    with connect(live) as connection:
        found = rows(connection, query)
    assert len(found) == len(set(found)) == 300
