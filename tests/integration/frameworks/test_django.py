"""The bus and Django Tasks on Django's own connection."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.bus import Bus, QueueNotFound
from postroad.testing import wait_until
from tests.integration.frameworks import django_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The Django project on a fresh database, with the queues of its tasks."""
    django_settings.configure(database, monkeypatch.setenv)
    from django.core.management import call_command
    from django.db import connection

    call_command("postroad_tasks", only_create=True)
    with connection.cursor() as cursor:
        cursor.execute("create table noted (text text)")
    yield database
    connection.close()


def noted(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return sorted(text for [text] in connection.execute("select text from noted"))


def test_posts_and_consumption_belong_to_the_atomic_block(project: str) -> None:
    from django.db import connection, transaction

    from postroad.integrations.django import bus

    with Bus(project) as own:
        own.create_queue("orders")
    with transaction.atomic():
        bus().post("orders", {"number": "1"})
        transaction.set_rollback(True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("insert into noted values ('with its message')")
        bus().post("orders", {"number": "2"})
        with transaction.atomic():
            bus().post("orders", {"number": "3"})
            transaction.set_rollback(True)
    with transaction.atomic():
        [message] = bus().consume("orders")
        assert message.data == {"number": "2"}
        transaction.set_rollback(True)
    with transaction.atomic():
        assert [message.data for message in bus().consume("orders")] == [{"number": "2"}]
    assert bus().consume("orders") == []


def installed(**options: Any) -> str:
    from django.core.management import call_command

    output = StringIO()
    call_command("postroad_install", stdout=output, **options)
    return output.getvalue().strip()


def test_the_bus_is_installed_on_the_connection_of_django(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    django_settings.configure(empty_database, monkeypatch.setenv)
    from django.core.management import CommandError
    from django.db import connection, transaction

    from postroad.integrations.django import bus

    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            session = cursor.fetchone()
            assert installed(dry_run=True) == "mbus: would be installed"
            cursor.execute("select to_regnamespace('mbus')")
            assert cursor.fetchone() == (None,)
            with (
                transaction.atomic(),
                pytest.raises(CommandError, match="not inside `atomic`"),
            ):
                installed()
            assert installed() == "mbus: installed"
            assert installed() == "mbus: current, nothing to do"
            cursor.execute("select pg_backend_pid()")
            assert cursor.fetchone() == session
        bus().create_queue("orders")
        bus().post("orders", {"number": "1"})
        assert [message.data for message in bus().consume("orders")] == [{"number": "1"}]
    finally:
        connection.close()


def test_a_task_is_enqueued_by_the_commit_only(project: str) -> None:
    from django.db import transaction

    from tests.integration.frameworks.shop_tasks import record

    with transaction.atomic():
        record.enqueue("never")
        transaction.set_rollback(True)
    with transaction.atomic():
        urgent = record.using(priority=10).enqueue("urgent")
        record.using(priority=-10).enqueue("not urgent")
        later = record.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue("later")
    assert urgent.status == "READY"
    with Bus(project) as own:
        found = own.consume("django_default", amount=10)
        assert [message.iid for message in found][:1] == [urgent.id]
        assert [message.data["args"] for message in found] == [["urgent"], ["not urgent"]]
        [delayed] = [each for each in own.status() if each.queue == "django_default"]
        assert delayed.delayed == 1
    assert later.id != urgent.id


def test_a_task_without_a_queue_is_refused(project: str) -> None:
    from tests.integration.frameworks.shop_tasks import record

    with Bus(project) as own:
        own.drop_queue("django_default")
    with pytest.raises(QueueNotFound):
        record.enqueue("never")


def test_a_task_of_another_package_is_refused(project: str) -> None:
    from tests.integration.frameworks.shop_tasks import record

    class Foreign:
        func, priority, queue_name, run_after = record.func, 0, "default", None
        takes_context, module_path = False, record.module_path

    with pytest.raises(TypeError, match="import the decorator from django"):
        record.get_backend().enqueue(Foreign(), ["never"], {})
    with Bus(project) as own:
        assert own.consume("django_default") == []


def backend_with(**parameters: object) -> Any:
    from postroad.integrations.django.tasks import PostroadBackend

    return PostroadBackend("default", parameters)


def test_projects_with_a_prefix_have_queues_of_their_own(project: str) -> None:
    backend = backend_with(QUEUES=["mail"], OPTIONS={"PREFIX": "shop"})
    backend.create_queues()
    from tests.integration.frameworks.shop_tasks import record_by_coroutine

    backend.enqueue(record_by_coroutine, ["text"], {})
    with Bus(project) as own:
        assert own.consume("django_mail") == []
        assert len(own.consume("shop_mail")) == 1


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"QUEUES": ["high-priority"]}, "'django_high-priority'"),
        ({"QUEUES": ["Mail"]}, "'django_Mail'"),
        ({"QUEUES": []}, "is empty"),
        ({"OPTIONS": {"PREFIX": "1-shop"}}, "'1-shop_default'"),
        ({"QUEUES": ["mail", "default"], "OPTIONS": {"PREFIX": "shop"}}, None),
    ],
)
def test_names_that_the_bus_does_not_permit_are_reported(
    parameters: dict[str, object], problem: str | None, project: str
) -> None:
    found = [each.msg for each in backend_with(**parameters).check()]
    assert len(found) == (problem is not None)
    assert all(problem in each for each in found if problem)


def test_the_command_does_not_start_with_names_that_the_bus_does_not_permit(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.management import CommandError, call_command
    from django_tasks import task_backends

    monkeypatch.setattr(task_backends["default"], "queues", {"high-priority"})
    with pytest.raises(CommandError, match="'django_high-priority'"):
        call_command("postroad_tasks", only_create=True)


@pytest.fixture
def finished(project: str) -> Iterator[list[Any]]:
    """The results that `task_finished` was sent with; another receiver raises."""
    from django_tasks.signals import task_finished

    results: list[Any] = []

    def note(task_result: Any, **_: object) -> None:
        results.append(task_result)

    def fail(**_: object) -> None:
        raise RuntimeError("as asked")

    task_finished.connect(fail)
    task_finished.connect(note)
    yield results
    task_finished.disconnect(fail)
    task_finished.disconnect(note)


def run_next(database: str) -> None:
    """Run a task as a worker does, and give it back if it raises."""
    from tests.integration.frameworks.shop_tasks import record

    with Bus(database) as own:
        [message] = own.lease("django_default")
        try:
            record.get_backend()._run(message)
        except TypeError as failure:
            own.nack(message, delay=timedelta(0), error=str(failure))
        else:
            own.ack(message)


def test_a_success_is_reported_with_the_value_and_the_options_of_the_task(
    project: str, finished: list[Any]
) -> None:
    from tests.integration.frameworks.shop_tasks import double

    past = datetime.now(UTC) - timedelta(hours=1)
    double.using(priority=10, run_after=past).enqueue(21)
    run_next(project)
    [result] = finished
    assert (result.status, result.return_value) == ("SUCCESSFUL", 42)
    assert (result.task.priority, result.task.run_after) == (10, past)
    assert (result.task.queue_name, result.task.backend) == ("default", "default")


def test_a_failure_is_reported_after_the_last_attempt_only(
    project: str, finished: list[Any]
) -> None:
    from tests.integration.frameworks.shop_tasks import double

    with Bus(project) as own:
        own.alter_consumer("django_default", "default", max_attempts=2)
    double.enqueue(None)
    run_next(project)
    assert finished == []
    run_next(project)
    [result] = finished
    assert result.status == "FAILED"
    assert result.errors[0].exception_class is TypeError
    assert "unsupported operand" in result.errors[0].traceback


@pytest.mark.slow
def test_the_command_runs_tasks_until_it_is_stopped(project: str) -> None:
    from tests.integration.frameworks.shop_tasks import fail_once, record, record_by_coroutine

    with Bus(project) as own:
        own.alter_consumer("django_default", "default", backoff=timedelta(milliseconds=10))
    record.enqueue("plain")
    record_by_coroutine.enqueue("awaited", sign="!")
    fail_once.enqueue("again")
    expected = ["again 1", "again 2", "awaited!", "plain"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "django", "postroad_tasks", "--concurrency=2"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        wait_until(lambda: noted(project) == expected, what="the tasks", timeout_seconds=60)
        process.terminate()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
    with Bus(project) as own:
        assert all(each.ready + each.delayed + each.dmq == 0 for each in own.status())
