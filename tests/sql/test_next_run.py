"""When schedules run: as croniter says, with the rule for changes of the clock."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from tests.sql.calls import one, refused

# A busy machine needs its time for a hundred examples.
pytestmark = pytest.mark.timeout(300)
MINUTE = timedelta(minutes=1)
# Changes by an hour, by half an hour, by two, at midnight, over a whole day; and none.
ZONES = (
    "UTC",
    "Europe/Moscow",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Asia/Kathmandu",
    "Asia/Beirut",
)
YEARS = (2010, 2025)
ENDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}


def changes(zone: str) -> list[datetime]:
    """Return the instants at which the clock of a zone is put forward or back."""
    place, found = ZoneInfo(zone), []
    day = datetime(YEARS[0], 1, 1, tzinfo=UTC)
    while day.year <= YEARS[1]:
        after = day + timedelta(days=1)
        if day.astimezone(place).utcoffset() != after.astimezone(place).utcoffset():
            found.append(transition(day, after, place))
        day = after
    return found


def transition(before: datetime, after: datetime, place: ZoneInfo) -> datetime:
    offset = before.astimezone(place).utcoffset()
    while after - before > MINUTE:
        middle = before + (after - before) // 2
        if middle.astimezone(place).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after.replace(second=0, microsecond=0)


CHANGES = {zone: changes(zone) for zone in ZONES}


@st.composite
def fields(draw: st.DrawFn, kind: str) -> str:
    low, high = ENDS[kind]

    def value(number: int) -> str:
        names = NAMES.get(kind)
        return names[number - low] if names and draw(st.booleans()) else str(number)

    def part() -> str:
        form = draw(st.sampled_from(("number", "number", "range", "step", "range step", "all")))
        # Not from a number to itself, which croniter reads as all numbers.
        first = draw(st.integers(low, high - 1))
        last = draw(st.integers(first + 1, high))
        step = draw(st.integers(1, 20))
        forms = {
            "number": value(first),
            "range": f"{value(first)}-{value(last)}",
            "step": f"*/{step}",
            "range step": f"{first}-{last}/{step}",
            "all": "*",
        }
        return forms[form]

    return ",".join(part() for _ in range(draw(st.integers(1, 3))))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw expressions, mostly without a restriction of months and days."""
    month = draw(st.one_of(st.just("*"), fields("month")))
    day = draw(st.one_of(st.just("*"), fields("day")))
    weekday = draw(st.one_of(st.just("*"), fields("weekday")))
    hour = draw(st.one_of(st.just("*"), fields("hour")))
    return f"{draw(fields('minute'))} {hour} {day} {month} {weekday}"


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a zone and a moment, half of them within two days of a change of its clock."""
    zone = draw(st.sampled_from(ZONES))
    if CHANGES[zone] and draw(st.booleans()):
        seconds = draw(st.integers(-172_800, 172_800))
        return zone, draw(st.sampled_from(CHANGES[zone])) + timedelta(seconds=seconds)
    start, days = datetime(YEARS[0], 1, 1, tzinfo=UTC), 365 * (YEARS[1] - YEARS[0])
    return zone, start + timedelta(seconds=draw(st.integers(0, days * 86_400)))


def instants(local: datetime, place: ZoneInfo) -> list[datetime]:
    """Return the instants at which a clock shows this time: none, one or two."""
    both = {local.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(
        one for one in both if one.astimezone(place).replace(tzinfo=None, fold=0) == local
    )


def instant(local: datetime, place: ZoneInfo) -> datetime:
    """Return the first instant of a local time, or the first one after the gap it is in."""
    if found := instants(local, place):
        return found[0]
    both = [local.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)]
    return transition(min(both), max(both), place)


def normalised(expression: str) -> str:
    """Write a field that allows all values as `*`: such a field does not restrict the days."""
    found, _ = croniter.expand(expression)
    sizes = [high - low + 1 for low, high in ENDS.values()]
    return " ".join(
        "*" if "*" in values or len(set(values)) == size else text
        for text, values, size in zip(expression.split(), found, sizes, strict=True)
    )


def expected(expression: str, zone: str, after: datetime) -> datetime:
    place = ZoneInfo(zone)
    start = after.astimezone(place).replace(tzinfo=None, fold=0) - timedelta(days=2)
    expression = normalised(expression)
    times = croniter(expression, start, max_years_between_matches=100)
    is_every_hour = expression.split()[1] == "*"
    best: datetime | None = None
    while True:
        local = times.get_next(datetime)
        found = instants(local, place) if is_every_hour else [instant(local, place)]
        for each in found:
            if each > after and (best is None or each < best):
                best = each
        # The second of two equal local times may be before a later local time.
        if best is not None and local > best.astimezone(place).replace(tzinfo=None) + timedelta(
            days=1 if is_every_hour else 0
        ):
            return best


@pytest.mark.both_versions
@pytest.mark.parametrize("timing", ["* * * * *", "0 3 * * *", "1 day"])
@pytest.mark.parametrize("after", ["infinity", "-infinity"])
def test_there_is_no_run_after_an_infinite_time(
    connection: Connection, timing: str, after: str
) -> None:
    connection.execute("set local statement_timeout = '10s'")
    with refused(connection, "MB012"):
        one(connection, "select mbus.next_run(%s, 'UTC', %s::timestamptz)", timing, after)


@settings(
    max_examples=1_000 if os.environ.get("POSTROAD_STRESS") else 100,
    deadline=None,
    # Reducing a failing example takes minutes, and the example is short anyway.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(expressions(), moments())
@example("30 2 * * *", ("Europe/Berlin", datetime(2024, 3, 31, 0, 0, tzinfo=UTC)))
@example("30 2 * * *", ("Europe/Berlin", datetime(2024, 10, 27, 0, 30, tzinfo=UTC)))
@example("*/20 * * * *", ("Europe/Berlin", datetime(2024, 10, 27, 0, 50, tzinfo=UTC)))
@example("0 12 30 12 *", ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC)))
@example("32 *,* * * *", ("Antarctica/Troll", datetime(2014, 10, 26, 1, 6, 26, tzinfo=UTC)))
@example("0 0 29 2 *", ("UTC", datetime(2016, 3, 1, tzinfo=UTC)))
@example("15 */2 13 * fri", ("America/New_York", datetime(2024, 9, 1, tzinfo=UTC)))
def test_runs_are_those_of_croniter_and_the_rule_for_clock_changes(
    connection: Connection, expression: str, moment: tuple[str, datetime]
) -> None:
    zone, after = moment
    try:
        wanted = expected(expression, zone, after)
    except CroniterBadDateError:
        with refused(connection, "MB012"):
            one(connection, "select mbus.next_run(%s, %s, %s)", expression, zone, after)
        return
    assert one(connection, "select mbus.next_run(%s, %s, %s)", expression, zone, after) == wanted
