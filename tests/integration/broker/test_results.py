"""The result backend by itself."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import Celery, states
from celery.exceptions import TimeoutError as ResultTimeout

from postroad.testing import wait_until
from tests.fixtures.postgres import InThread


@pytest.mark.both_versions
def test_a_result_is_kept_and_forgotten(app: Celery) -> None:
    app.backend.store_result("one", {"answer": 42}, states.SUCCESS)
    result = app.AsyncResult("one")
    assert (result.get(timeout=5), result.state) == ({"answer": 42}, "SUCCESS")
    result.forget()
    assert app.AsyncResult("one").state == "PENDING"


def test_a_failure_comes_back_as_the_exception(app: Celery) -> None:
    app.backend.store_result("one", ValueError("why"), states.FAILURE)
    with pytest.raises(ValueError, match="why"):
        app.AsyncResult("one").get(timeout=5)


def test_a_success_is_never_overwritten(app: Celery) -> None:
    app.backend.store_result("one", 1, states.SUCCESS)
    app.backend.store_result("one", None, states.RETRY)
    assert app.AsyncResult("one").get(timeout=5) == 1


def test_who_waits_is_told_when_it_comes(app: Celery, url: str, in_thread: InThread) -> None:
    waiting = in_thread(lambda: app.AsyncResult("one").get(timeout=20))
    with app.pool.acquire(block=True) as connection:
        connection.connect()
        link = connection.transport.link
        wait_until(
            lambda: (
                link.run(
                    "select count(*) from pg_locks where locktype = 'advisory' and"
                    " classid::bigint = hashtext('broker.result') & 4294967295::bigint"
                )
                == [(1,)]
            ),
            what="somebody waits",
        )
    app.backend.store_result("one", "there", states.SUCCESS)
    assert waiting.result(timeout=10) == "there"


def test_who_waits_in_vain_is_told_so(app: Celery) -> None:
    with pytest.raises(ResultTimeout):
        app.AsyncResult("never").get(timeout=0.1)


def test_many_are_fetched_in_one_call(app: Celery) -> None:
    for number in range(20):
        app.backend.store_result(str(number), number, states.SUCCESS)
    found = dict(app.backend.get_many([str(number) for number in range(25)], max_iterations=1))
    assert {task_id: meta["result"] for task_id, meta in found.items()} == {
        str(number): number for number in range(20)
    }


@pytest.mark.both_versions
def test_what_has_expired_is_not_given_and_is_cleaned_up(app: Celery) -> None:
    backend = app.backend
    backend.store_result("short", 1, states.SUCCESS)
    backend.store_result("long", 2, states.SUCCESS)
    backend.expire(backend.get_key_for_task("short"), timedelta(microseconds=1).total_seconds())
    assert backend.get(backend.get_key_for_task("short")) is None
    backend.cleanup()
    assert backend._run(("select count(*) from broker.result", ())) == [[(1,)]]


def test_a_group_is_saved_and_restored(app: Celery) -> None:
    saved = app.GroupResult("g", [app.AsyncResult("a"), app.AsyncResult("b")])
    saved.save(backend=app.backend)
    restored = app.GroupResult.restore("g", backend=app.backend)
    assert [each.id for each in restored.results] == ["a", "b"]
    restored.delete()
    assert app.GroupResult.restore("g", backend=app.backend) is None


def test_only_the_last_part_of_a_chord_reads_its_header(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    sent: list[int] = []
    header = app.backend._header

    def read_header(request: SimpleNamespace) -> object:
        read.append(request.id)
        return header(request)

    def send_body(_: object, parts: list[object]) -> None:
        sent.append(len(parts))

    monkeypatch.setattr(app.backend, "_header", read_header)
    monkeypatch.setattr(app.backend, "_send_body", send_body)
    app.backend.apply_chord(("group", [app.AsyncResult(name) for name in "abc"]), None)
    for name in "abc":
        if name == "b":
            # A part may end before the publisher has counted them.
            app.backend.set_chord_size("group", 3)
        request = SimpleNamespace(id=name, group="group", chord={"task": "total"})
        app.backend.on_chord_part_return(request, states.SUCCESS, 1)
    assert (read, sent) == (["c"], [3])


def test_the_values_of_a_chord_are_joined_by_one_query(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        app.backend.store_result(name, name, states.SUCCESS)
    parts = app.GroupResult("group", [app.AsyncResult(name) for name in "abc"])
    queries: list[object] = []
    run = app.backend._run

    def count(*statements: object) -> object:
        queries.append(statements)
        return run(*statements)

    monkeypatch.setattr(app.backend, "_run", count)
    assert app.backend._join(parts) == ["a", "b", "c"]
    assert len(queries) == 1


@pytest.mark.both_versions
def test_a_chord_counts_parts_and_not_runs(app: Celery) -> None:
    def ended(part: str) -> object:
        [[[is_complete]]] = app.backend._run(
            ("select broker.end_chord_part('chord', %s, 3)", (part,))
        )
        return is_complete

    assert [ended("a"), ended("a"), ended("b")] == [False, False, False]
    # The last part may be done again while nobody has said that the body was sent.
    assert [ended("c"), ended("c")] == [True, True]
    app.backend._run(("select broker.end_chord('chord')", ()))
    assert ended("c") is False


def test_a_lost_session_is_made_again(app: Celery) -> None:
    backend = app.backend
    backend.store_result("one", 1, states.SUCCESS)
    [[[pid]]] = backend._run(("select pg_backend_pid()", ()))
    with app.connection() as connection:
        connection.connect()
        connection.transport.link.run("select pg_terminate_backend(%s)", (pid,))
    backend.store_result("two", 2, states.SUCCESS)
    assert backend.get_result("two") == 2


def test_the_password_is_not_shown(app: Celery) -> None:
    hidden = Celery(backend="mbus://me:hush@host/x").backend
    assert "hush" not in hidden.as_uri()
    assert "hush" not in repr(hidden)
