"""Celery beat on schedules: several beats, and each run is one task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path

import psycopg
import pytest
from celery import Celery
from celery.beat import SchedulingError
from celery.exceptions import ImproperlyConfigured
from celery.schedules import BaseSchedule, crontab, schedule
from kombu import Connection

from postroad.broker.beat import BeatScheduler
from postroad.bus import Bus
from postroad.testing import DatabaseClock, wait_until
from tests.integration.broker.crew import CeleryProcess
from tests.sql.calls import rows


@pytest.fixture
def bus(database: str) -> Iterator[Bus]:
    with Bus(database) as bus:
        yield bus


def beats(app: Celery, count: int) -> list[BeatScheduler]:
    found = [BeatScheduler(app) for _ in range(count)]
    for beat in found:
        beat.tick()
    return found


def planned(app: Celery, **entries: object) -> None:
    app.conf.beat_schedule = {
        name: {"task": "tests.add", "schedule": when, "args": (1, 2)}
        for name, when in entries.items()
    }
    app.conf.timezone = "Europe/Moscow"


def stored(database_url: str) -> dict[str, tuple[str, str]]:
    with psycopg.connect(database_url) as connection:
        found = rows(connection, "select schedule, timing, timezone from mbus.schedules")
    return {name.partition(".")[2]: (timing, zone) for name, timing, zone in found}


def test_entries_are_stored_and_removed_with_the_application(app: Celery, database: str) -> None:
    planned(
        app,
        nightly=crontab(minute=0, hour=3),
        workdays=crontab(minute="*/30", hour="9-10", day_of_week="mon-fri"),
        often=timedelta(seconds=90),
    )
    (beat,) = beats(app, 1)
    beat.close()
    found = stored(database)
    assert found["nightly"] == ("0 3 * * *", "Europe/Moscow")
    assert found["workdays"] == ("0,30 9,10 * * 1,2,3,4,5", "Europe/Moscow")
    assert found["often"] == ("90.0 seconds", "UTC")
    planned(app, nightly=crontab(minute=30, hour=4))
    (beat,) = beats(app, 1)
    beat.close()
    assert "often" not in stored(database)
    assert stored(database)["nightly"] == ("30 4 * * *", "Europe/Moscow")


def test_of_several_beats_one_sends_the_task_of_a_run(
    app: Celery, broker: Connection, bus: Bus
) -> None:
    broker.channel().queue_declare("celery")
    planned(app, nightly=crontab(minute=0, hour=3))
    running = beats(app, 3)
    for _ in range(2):
        bus.run_now(f"{running[0]._queue}.nightly")
    for beat in running:
        beat.tick()
        beat.tick()
        beat.close()
    queue = broker.SimpleQueue("celery")
    messages = [queue.get(timeout=10) for _ in range(2)]
    assert len({message.headers["id"] for message in messages}) == 2
    assert {message.headers["task"] for message in messages} == {"tests.add"}
    assert len(queue) == 0


def test_a_run_that_cannot_be_sent_is_tried_again(
    app: Celery,
    broker: Connection,
    bus: Bus,
    clock: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SchedulingError("no")

    broker.channel().queue_declare("celery")
    planned(app, nightly=crontab(minute=0, hour=3))
    (beat,) = beats(app, 1)
    bus.run_now(f"{beat._queue}.nightly")
    with monkeypatch.context() as patch:
        patch.setattr(beat, "apply_async", fail)
        beat.tick()
    queue = broker.SimpleQueue("celery")
    assert bus.status(beat._queue)[0].delayed == 1
    assert len(queue) == 0
    clock.advance(timedelta(seconds=6))
    beat.tick()
    assert queue.get(timeout=10).headers["task"] == "tests.add"
    beat.close()


def test_what_cron_cannot_express_is_refused(app: Celery) -> None:
    for when in (
        crontab(day_of_month=1, day_of_week=1),
        crontab(nowfun=app.now),
        BaseSchedule(),
        schedule(timedelta(hours=1), relative=True),
        timedelta(milliseconds=500),
    ):
        planned(app, odd=when)
        with pytest.raises(ImproperlyConfigured):
            beats(app, 1)
    far = Celery("far", broker=app.conf.broker_url)
    planned(far, nightly=crontab(minute=0, hour=3))
    # PostgreSQL would read its name with the opposite sign.
    far.conf.timezone = timezone(timedelta(hours=3))
    with pytest.raises(ImproperlyConfigured):
        beats(far, 1)


def test_runs_of_entries_that_a_beat_does_not_have_are_left_to_the_others(
    app: Celery, broker: Connection, bus: Bus, clock: DatabaseClock
) -> None:
    broker.channel().queue_declare("celery")
    planned(app, nightly=crontab(minute=0, hour=3))
    (old,) = beats(app, 1)
    planned(app, nightly=crontab(minute=0, hour=3), hourly=crontab(minute=0))
    (new,) = beats(app, 1)
    bus.run_now(f"{new._queue}.hourly")
    # More often than a message is attempted.
    for _ in range(12):
        old.tick()
        clock.advance(timedelta(seconds=6))
    bus.run_now(f"{old._queue}.nightly")
    old.tick()
    queue = broker.SimpleQueue("celery")
    assert len(queue) == 1
    clock.advance(timedelta(seconds=6))
    new.tick()
    assert len(queue) == 2
    # An entry that is gone has no runs to be sent.
    bus.run_now(f"{new._queue}.hourly")
    bus.unschedule(f"{new._queue}.hourly")
    old.tick()
    assert bus.status(old._queue)[0].depth == 0
    for beat in (old, new):
        beat.close()


def test_applications_with_similar_names_keep_their_entries(url: str, database: str) -> None:
    running = []
    for name in ("company-platform-service-a", "company-platform-service-b", "company.platform"):
        app = Celery(name, broker=url)
        planned(app, nightly=crontab(minute=0, hour=3))
        running += beats(app, 1)
    for beat in running:
        beat.close()
    with psycopg.connect(database) as connection:
        assert len(rows(connection, "select schedule from mbus.schedules")) == 3


def test_a_beat_waits_for_its_database(app: Celery, url: str) -> None:
    planned(app, nightly=crontab(minute=0, hour=3))
    app.conf.broker_url = "mbus://nobody@127.0.0.1:1/nowhere"
    (beat,) = beats(app, 1)
    assert beat._pool is None
    app.conf.broker_url = [url, url]
    app.close()
    beat.tick()
    assert beat._pool is not None
    beat.close()


def test_beats_go_on_when_one_of_them_is_killed(
    app: Celery,
    broker: Connection,
    bus: Bus,
    database: str,
    url: str,
    tmp_path: Path,
) -> None:
    broker.channel().queue_declare("celery")
    running = [
        CeleryProcess(url, tmp_path, "beat", "-S", "postroad.broker.beat:BeatScheduler")
        for _ in range(2)
    ]
    queue = broker.SimpleQueue("celery")
    sent = [queue.get(timeout=60).headers["id"] for _ in range(2)]
    running[0].kill()
    sent += [queue.get(timeout=60).headers["id"] for _ in range(2)]
    running[1].stop()
    # The next one sends what they have left.
    (last,) = beats(app, 1)
    bus.pause_schedule(f"{last._queue}.often")
    wait_until(lambda: last.tick() and not bus.status(last._queue)[0].depth, what="all runs sent")
    last.close()
    sent += [queue.get(timeout=60).headers["id"] for _ in range(len(queue))]
    with psycopg.connect(database) as connection:
        ((posted,),) = rows(connection, "select count(*) from mbus.schedule_run")
    assert len(set(sent)) == len(sent) == posted
