"""Celery workers as real processes, on the embedded PostgreSQL: what a worker does is Celery's."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from celery import Celery, chord, group
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from psycopg.conninfo import conninfo_to_dict

from postroad.broker.transaction import TransactionConnection
from postroad.testing import wait_until
from tests.integration.broker.crew import LEASED, Hire, lines
from tests.integration.broker.tasks import make_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECONDS = 30


def task(app: Celery, name: str, *arguments: object, **options: object) -> AsyncResult:
    return app.send_task(name, arguments, **options)


def number(database: str, query: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent", "eventlet"])
def test_tasks_run_and_give_results_in_every_pool(app: Celery, hire: Hire, pool: str) -> None:
    worker = hire(f"--pool={pool}", "--concurrency=2")
    assert task(app, "add", 2, 3).get(timeout=SECONDS) == 5
    assert task(app, "retry").get(timeout=SECONDS) == 2
    with pytest.raises(ValueError, match="as asked"):
        task(app, "fail").get(timeout=SECONDS)
    adds = [app.signature("add", (number, number)) for number in range(10)]
    assert group(adds, app=app)().get(timeout=SECONDS) == [2 * number for number in range(10)]
    assert chord(adds, app=app)(app.signature("total")).get(timeout=SECONDS) == 90
    worker.stop()
    assert worker.process.returncode == 0


def test_a_worker_holds_four_sessions_and_one_per_pool_process(
    app: Celery, hire: Hire, database: str, tmp_path: Path
) -> None:
    count = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> pg_backend_pid()"
    )
    for each in range(50):
        task(app, "record", str(each))
    app.close()
    others = number(database, count)
    hire("--concurrency=2", brief=False)
    wait_until(lambda: len(lines(tmp_path, "records")) == 50, what="all have run")
    # It consumes, sends events, extends leases and does the upkeep; each process of the pool has
    # stored a result.
    assert 3 < number(database, count) - others <= 4 + 2


def test_a_worker_answers_remote_control(app: Celery, hire: Hire, tmp_path: Path) -> None:
    hire("--concurrency=1", "--hostname=one@test", "--prefetch-multiplier=1", brief=False)
    inspect = app.control.inspect(timeout=SECONDS, limit=1)
    assert inspect.ping() == {"one@test": {"ok": "pong"}}
    assert [queue["name"] for queue in inspect.active_queues()["one@test"]] == ["celery"]

    running = task(app, "linger", "running")
    wait_until(lambda: lines(tmp_path, "begun"), what="the task begun")
    [active] = inspect.active()["one@test"]
    assert active["id"] == running.id
    waiting = task(app, "record", "never")
    app.control.revoke(waiting.id)
    app.control.revoke(running.id, terminate=True, signal="SIGKILL")
    for revoked in (running, waiting):
        with pytest.raises(TaskRevokedError):
            revoked.get(timeout=SECONDS)
    assert lines(tmp_path, "records") == []

    [answer] = app.control.rate_limit("add", "20/s", reply=True, timeout=SECONDS, limit=1)
    assert "ok" in answer["one@test"]
    limited = [task(app, "add", 1, number) for number in range(5)]
    assert [each.get(timeout=SECONDS) for each in limited] == [1, 2, 3, 4, 5]


def test_scheduled_tasks_in_the_database_are_listed_by_the_workers_of_their_queue(
    app: Celery, hire: Hire, database: str
) -> None:
    hire("--concurrency=1", "--hostname=one@test", "--queues=celery", brief=False)
    hire("--concurrency=1", "--hostname=two@test", "--queues=other", brief=False)
    now = datetime.now(UTC)
    later, sooner, urgent = (now + timedelta(hours=hours) for hours in (3, 1, 2))
    expected = [
        app.send_task("add", (1, 2), {"right": 3}, eta=eta, priority=priority).id
        for eta, priority in ((sooner, 0), (urgent, 7), (later, 0))
    ]
    # Skipped: unknown to the worker, not a task, of a queue that neither consumes.
    app.send_task("unknown", eta=sooner)
    app.send_task("add", (1, 2), eta=sooner, queue="third")
    with psycopg.connect(database) as connection:
        bus_name = "select bus_name from broker.queue where name = 'celery'"
        [[name]] = connection.execute(bus_name).fetchall()
        connection.execute(
            "select mbus.post(%s, '[[', delayed_until => now() + interval '1 hour')", (name,)
        )
    inspect = app.control.inspect(timeout=SECONDS, limit=2)
    answers = inspect.scheduled()
    assert answers["two@test"] == []
    listed = answers["one@test"]
    assert [each["request"]["id"] for each in listed] == expected
    assert [each["eta"] for each in listed] == [
        each.isoformat() for each in (sooner, urgent, later)
    ]
    assert listed[1]["request"] == {
        "id": expected[1],
        "name": "add",
        "type": "add",
        "args": [1, 2],
        "kwargs": {"right": 3},
        "hostname": "one@test",
        "time_start": None,
        "acknowledged": False,
        "delivery_info": {
            "exchange": "",
            "routing_key": "celery",
            "priority": 7,
            "redelivered": False,
        },
        "worker_pid": None,
    }
    assert {each["priority"] for each in listed} == {6}


def test_a_killed_worker_loses_nothing_and_its_task_is_soon_with_another(
    app: Celery, hire: Hire, tmp_path: Path
) -> None:
    first = hire("--concurrency=1", "--hostname=first@test")
    result = task(app, "linger", "long")
    wait_until(lambda: lines(tmp_path, "begun"), what="the task begun")
    prefetched = [task(app, "record", str(number)) for number in range(3)]
    first.kill()
    hire("--concurrency=1", "--hostname=second@test")
    wait_until(lambda: len(lines(tmp_path, "begun")) == 2, what="the task begun again")
    assert lines(tmp_path, "begun")[1].endswith("True")
    (tmp_path / "go").touch()
    result.get(timeout=SECONDS)
    for each in prefetched:
        each.get(timeout=SECONDS)
    assert lines(tmp_path, "ended") == ["long"]


@pytest.mark.parametrize("pool", ["solo", "gevent", "eventlet"])
def test_a_long_task_is_not_run_twice(
    app: Celery, hire: Hire, database: str, tmp_path: Path, pool: str
) -> None:
    for name in ("one", "two"):
        hire("--concurrency=1", f"--hostname={name}@test", f"--pool={pool}")
    result = task(app, "linger", "long")
    wait_until(lambda: lines(tmp_path, "begun"), what="the task begun")
    until = f"select extract(epoch from max(due_at))::bigint from {LEASED}"
    first = number(database, until)
    # Beyond the first lease: extended again and again while the loop is busy with the task.
    wait_until(lambda: number(database, until) >= first + 4, what="the lease extended")
    (tmp_path / "go").touch()
    result.get(timeout=SECONDS)
    assert len(lines(tmp_path, "begun")) == 1


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_a_pool_of_green_threads_runs_tasks_side_by_side_and_loses_none_when_killed(
    app: Celery, hire: Hire, tmp_path: Path, pool: str
) -> None:
    options = (f"--pool={pool}", "--concurrency=20", "--prefetch-multiplier=1")
    first = hire(*options, "--hostname=first@test")
    results = [task(app, "linger", str(number)) for number in range(20)]
    wait_until(
        lambda: len(lines(tmp_path, "begun")) == 20, what="all begun", timeout_seconds=SECONDS
    )
    first.kill()
    hire(*options, "--hostname=second@test")
    wait_until(
        lambda: len(lines(tmp_path, "begun")) == 40, what="all again", timeout_seconds=SECONDS
    )
    (tmp_path / "go").touch()
    for result in results:
        result.get(timeout=SECONDS)
    assert sorted(lines(tmp_path, "ended"), key=int) == [str(number) for number in range(20)]


def test_clients_send_through_a_pooler_to_workers_with_sessions_of_their_own(
    app: Celery, hire: Hire, pooled: str
) -> None:
    hire("--concurrency=2")
    part = conninfo_to_dict(pooled)
    address = f"mbus://{part['user']}@127.0.0.1:{part['port']}/{part['dbname']}"
    # As `broker_write_url` in the settings of a web application; two sessions serve them all.
    clients = [make_app(address) for _ in range(4)]
    sent = [task(clients[n % 4], "add", n, n) for n in range(40)]
    assert [each.get(timeout=SECONDS) for each in sent] == [2 * n for n in range(40)]
    with psycopg.connect(pooled, prepare_threshold=None) as connection:
        kept = clients[0].send_task("add", (1, 2), connection=TransactionConnection(connection))
        connection.commit()
        clients[0].send_task("record", ("never",), connection=TransactionConnection(connection))
        connection.rollback()
    assert kept.get(timeout=SECONDS) == 3
    for client in clients:
        client.backend.close()
        client.close()


def test_a_shutdown_returns_at_once_what_was_prefetched(
    app: Celery, hire: Hire, database: str, tmp_path: Path
) -> None:
    worker = hire("--concurrency=1", "--prefetch-multiplier=4")
    running = task(app, "linger", "running")
    # Before its pool has it a task is only prefetched, too, and a shutdown would return it.
    wait_until(lambda: lines(tmp_path, "begun"), what="the task begun")
    prefetched = [task(app, "record", str(number)) for number in range(3)]
    wait_until(lambda: number(database, f"select count(*) from {LEASED}") == 4, what="four leased")
    worker.process.terminate()
    worker.wait_for("Warm shutdown")
    (tmp_path / "go").touch()
    worker.process.wait()
    assert running.get(timeout=SECONDS)
    assert number(database, f"select count(*) from {LEASED}") == 0
    hire("--concurrency=1")
    assert [each.get(timeout=SECONDS) for each in prefetched] == ["0", "1", "2"]


def test_rejected_and_unknown_tasks_are_with_the_dead_and_requeued_ones_run(
    app: Celery, hire: Hire, database: str
) -> None:
    hire("--concurrency=1")
    assert task(app, "refuse", True).get(timeout=SECONDS) == "second time"
    task(app, "refuse", False)
    task(app, "unheard of")
    wait_until(lambda: number(database, "select count(*) from mbus.dead") == 2, what="two dead")


DEEP: object = functools.reduce(lambda inner, _: [inner], range(500), "deep")
HOSTILE: list[dict[str, object]] = [
    {"body": "x", "properties": {"body_encoding": "zlib"}},
    {"body": "x", "headers": {"task": []}},
    {"body": "[[], {}, {}]", "headers": {"task": "add", "id": "1", "stamps": DEEP}},
    {"body": "[[], {}, {}]", "headers": {"task": "add", "id": "1", "timelimit": ["x", "y"]}},
    {"body": "x", "headers": {"task": "add", "id": {}, "lang": 1}},
    {"body": "x", "headers": {"task": "add", "id": "1", "eta": 10**30}},
    {"body": "[[], {}, {}]", "headers": {"task": "add", "id": [], "expires": "x"}},
    {"body": "[[], {}, {}]", "headers": {"task": "add", "id": "1", "timelimit": 1}},
    {"body": "[[], {}, {}]", "headers": {"task": "add", "id": "1", "retries": "x"}},
    {"body": "[1, 2, 3]", "headers": {"task": "add", "id": "2", "expires": 1e300}},
    {"body": "[" * 20_000, "headers": {"task": "add", "id": "2"}},
    {"body": "[" * 20_000},
    {"body": "{}", "content-type": [], "content-encoding": []},
    {"body": "\ud800", "headers": {"task": "add", "id": "3"}},
    {"body": None, "headers": {"task": "add", "id": None}},
]


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_no_task_message_stops_a_worker(app: Celery, hire: Hire, database: str, pool: str) -> None:
    worker = hire("--concurrency=1", f"--pool={pool}")
    with psycopg.connect(database, autocommit=True) as connection:
        [[name]] = connection.execute(
            "select bus_name from broker.queue where name = 'celery'"
        ).fetchall()
        plain = {"content-type": "application/json", "content-encoding": "utf-8"}
        texts = [json.dumps(plain | {"properties": {}} | each) for each in HOSTILE]
        for text in ("[" * 50_000, *texts):
            connection.execute(f"select mbus.post_{name}(%s)", (text,))
            last = task(app, "add", 2, 3)
            assert last.get(timeout=SECONDS) == 5
    # Nothing is left with the worker: each was run, refused or is among the dead.
    wait_until(lambda: number(database, f"select count(*) from {LEASED}") == 0, what="all done")
    assert worker.process.poll() is None


def test_a_worker_that_cannot_go_on_exits_and_reports_a_failure(
    app: Celery, hire: Hire, tmp_path: Path
) -> None:
    worker = hire("--concurrency=2")
    running = task(app, "linger", "running")
    wait_until(lambda: lines(tmp_path, "begun"), what="the task begun")
    (tmp_path / "crash").touch()
    (tmp_path / "go").touch()
    assert worker.process.wait(SECONDS) == 1
    # A task that runs is finished first.
    assert running.state == "SUCCESS"


def test_a_task_for_later_stays_in_the_database(app: Celery, hire: Hire, database: str) -> None:
    hire("--concurrency=1")
    later = [task(app, "add", 1, 1, countdown=3600) for _ in range(20)]
    assert task(app, "add", 2, 2).get(timeout=SECONDS) == 4
    assert number(database, "select count(*) from mbus.delayed") == 20
    wait_until(lambda: number(database, f"select count(*) from {LEASED}") == 0, what="acked")
    with psycopg.connect(database) as connection:
        connection.execute("update mbus.delayed set due_at = mbus.now() where id = 1")
    # Due for the database; the worker keeps to the hour that the task itself names.
    wait_until(lambda: number(database, f"select count(*) from {LEASED}") == 1, what="leased")
    assert later[0].state == "PENDING"


def test_a_worker_and_its_client_survive_a_restart_of_postgresql(
    own_server: object, tmp_path: Path
) -> None:
    from postroad.testing import TestServer
    from tests.integration.broker.crew import CeleryProcess, url_of
    from tests.integration.broker.tasks import make_app

    assert isinstance(own_server, TestServer)
    name = own_server.create()
    url = url_of(own_server.dsn(name))
    app = make_app(url)
    worker = CeleryProcess(url, tmp_path, "worker", "--loglevel=info", "--concurrency=2")
    try:
        worker.wait_for(" ready.")
        assert task(app, "add", 1, 1).get(timeout=SECONDS) == 2
        own_server.stop()
        worker.wait_for("Cannot connect to")
        own_server.start()
        assert task(app, "add", 2, 2).get(timeout=SECONDS) == 4
        worker.stop()
        assert worker.process.returncode == 0
    finally:
        if worker.process.poll() is None:
            worker.kill()
        app.backend.close()
        app.close()
