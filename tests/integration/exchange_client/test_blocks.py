"""`with exchange.process(…)`: what a block does, and how it ends. On each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from postroad.exchange.client import (
    ChecksumMismatch,
    ConnectionBusy,
    DatabaseRestored,
    Exchange,
    File,
    NotAnswered,
    ProcessCancelled,
    Refused,
    Work,
)
from postroad.testing import wait_until
from tests.fixtures.exchange_server import ExchangeProcess, unique
from tests.integration.exchange_client.erps import Erp, execute


@dataclass
class Scene:
    """A mobile client, an ERP instance, and the ERP's database."""

    server: ExchangeProcess
    database: str
    mobile: Exchange
    instance: Exchange
    erp: Erp
    connection: Any

    def take(self, work: Work) -> None:
        for file in work.files:
            self.insert(file, work)
            work.reply(file.sender, {"taken": file.id}, reply_to=file)

    def insert(self, file: File, work: Work) -> None:
        statement = "insert into orders (id, process_id) values (?, ?)"
        execute(self.erp.engine, self.connection, statement, (file.id, work.id))

    def turn(self) -> Work:
        with self.instance.process(self.database, self.connection) as work:
            self.take(work)
        return work


@pytest.fixture
def scene(served: ExchangeProcess, erp: Erp) -> Iterator[Scene]:
    connection = erp.connect()
    database = unique("db")
    mobile, instance = (
        served.client(unique("mobile")),
        served.client(unique("erp")),
    )
    yield Scene(served, database, mobile, instance, erp, connection)
    connection.close()


def test_a_block_commits_and_its_replies_arrive(scene: Scene) -> None:
    for number in range(3):
        scene.mobile.send(scene.database, {"number": number}, id=f"m{number}")
    work = scene.turn()
    assert [file.body for file in work.files] == [{"number": number} for number in range(3)]
    assert work.is_confirmed
    assert scene.erp.orders() == ["m0", "m1", "m2"]
    replies = scene.mobile.receive()
    assert [reply.body for reply in replies] == [{"taken": f"m{number}"} for number in range(3)]
    for reply in replies:
        scene.mobile.ack(reply)
        scene.mobile.ack(reply.id)
    assert scene.mobile.receive() == []
    assert scene.server.states(scene.database) == {"done": 3, "reply done": 3}
    assert scene.erp.run("select is_acked, marker_seq from exchange_marker") == [(1, 1)]


def test_without_work_the_block_is_false_and_its_own_changes_are_kept(scene: Scene) -> None:
    with scene.instance.process(scene.database, scene.connection) as work:
        execute(scene.erp.engine, scene.connection, "insert into orders (id) values ('own')")
    assert not work
    assert work.status == "IDLE"
    assert work.files == []
    assert scene.erp.orders() == ["own"]


def test_a_block_that_raises_is_rolled_back_and_told(scene: Scene) -> None:
    scene.mobile.send(scene.database, 1, id="m1")
    work = _failed(scene)
    assert scene.erp.orders() == []
    assert scene.mobile.receive() == []
    error = scene.server.rows("select error from exchange.process where id = %s", work.id)
    assert error == [("ZeroDivisionError: division by zero",)]
    # The connection is as good as before, and the message comes again.
    scene.turn()
    assert scene.erp.orders() == ["m1"]


def _failed(scene: Scene) -> Work:
    try:
        with scene.instance.process(scene.database, scene.connection) as work:
            scene.take(work)
            assert 1 / 0
    except ZeroDivisionError:
        return work
    raise AssertionError("the block's error is gone")


def test_deferred_and_incorrect_files_are_left_out(scene: Scene) -> None:
    for name in ("good", "later", "bad"):
        scene.mobile.send(scene.database, name, id=name)
    with scene.instance.process(scene.database, scene.connection) as work:
        good, later, bad = work.files
        scene.insert(good, work)
        work.defer(later, "not now", delay_seconds=3600)
        work.reject(bad, "makes no sense")
    assert scene.server.states(scene.database) == {"done": 1, "deferred": 1, "parked": 1}
    assert scene.erp.orders() == ["good"]


def test_a_group_is_one_file(scene: Scene) -> None:
    messages = [{"id": "a", "body": 1}, {"id": "b", "body": {"x": "ü"}}]
    scene.mobile.send(scene.database, messages=messages, id="g")
    work = scene.turn()
    assert work.files[0].messages == messages


def test_large_and_binary_contents_pass_unharmed(scene: Scene) -> None:
    large = bytes(range(256)) * 4000
    scene.mobile.send(scene.database, content=large, media_type="image/x-sample", id="large")
    scene.mobile.send(scene.database, {"text": "ё" * 100_000, "float": 0.1 + 0.2}, id="json")
    sender = None
    with scene.instance.process(scene.database, scene.connection) as work:
        first, second = work.files
        assert first.content == large
        assert first.media_type == "image/x-sample"
        assert second.body["float"] == 0.1 + 0.2
        assert len(second.body["text"]) == 100_000
        sender = first.sender
        work.reply(sender, content=large, media_type="image/x-sample", name="picture.x")
        work.reply(sender, content=b"small")
        work.reply(sender, {"big": "x" * 300_000})
    small, big, picture = sorted((r.content for r in scene.mobile.receive()), key=len)
    assert (small, picture) == (b"small", large)
    assert len(big) > 300_000


def test_content_that_is_not_what_was_stored_is_refused() -> None:
    facts = {"name": "n", "id": "i", "sender": "s", "sha256": "0" * 64, "body": 1}
    with pytest.raises(ChecksumMismatch):
        assert File(facts, lambda _: b"").content


def test_another_instance_finds_it_busy(scene: Scene) -> None:
    scene.mobile.send(scene.database, 1, id="m1")
    other = scene.server.client(unique("other"))
    connection = scene.erp.connect()
    # SQLite has one writer at a time, and the block is it.
    with scene.instance.process(scene.database, scene.connection, has_marker=False) as work:
        answer = other.start({"database": scene.database, "attempt": "a"})
        assert answer["status"] == "BUSY"
        assert answer["retry_after"] >= 1
        assert work
    connection.close()


def test_an_open_transaction_is_refused(scene: Scene) -> None:
    execute(scene.erp.engine, scene.connection, "insert into orders (id) values ('x')")
    process = scene.instance.process(scene.database, scene.connection)
    with pytest.raises(ConnectionBusy), process:
        pass
    scene.connection.rollback()


def test_a_confirmation_that_was_lost_is_told_by_the_next_process(scene: Scene) -> None:
    scene.mobile.send(scene.database, 1, id="m1")
    with scene.instance.process(scene.database, scene.connection) as work:
        scene.take(work)
        # The exchange is not there any more when the block has committed.
        commit = scene.instance.commit
        scene.instance.commit = _not_answered  # type: ignore[method-assign]
    scene.instance.commit = commit  # type: ignore[method-assign]
    assert not work.is_confirmed
    assert scene.erp.orders() == ["m1"]
    assert scene.mobile.receive() == []
    with scene.instance.process(scene.database, scene.connection) as again:
        assert again.files == []
    assert len(scene.mobile.receive()) == 1
    assert scene.erp.run("select is_acked from exchange_marker") == [(1,)]


def _not_answered(_: str) -> dict[str, Any]:
    raise NotAnswered("gone")


def test_what_an_administrator_cancelled_does_not_commit(scene: Scene) -> None:
    scene.mobile.send(scene.database, 1, id="m1")
    admin = Exchange(scene.server.url, scene.server.token(unique("admin"), is_admin=True))

    def release_midway() -> None:
        with scene.instance.process(scene.database, scene.connection) as work:
            scene.take(work)
            path = f"/processes/{work.id}/release"
            admin._call("POST", path, {"reason": "enough"}, ("OK",))

    with pytest.raises(ProcessCancelled):
        release_midway()
    assert scene.erp.orders() == []
    scene.turn()
    assert scene.erp.orders() == ["m1"]


def test_a_restored_database_is_told(scene: Scene) -> None:
    for number in range(2):
        scene.mobile.send(scene.database, number, id=f"m{number}")
        scene.turn()
    scene.erp.run("delete from exchange_marker where marker_seq = 2")
    process = scene.instance.process(scene.database, scene.connection)
    with pytest.raises(DatabaseRestored) as told, process:
        pass
    assert (told.value.last, told.value.got) == (2, 1)


def test_no_rights_is_a_refusal_and_no_reason_to_try_again(scene: Scene) -> None:
    stranger = Exchange(scene.server.url, "wrong")
    with pytest.raises(Refused) as refused:
        stranger.send(scene.database, 1)
    assert refused.value.status == 401


def test_sending_again_is_harmless_and_other_content_is_refused(scene: Scene) -> None:
    first = scene.mobile.send(scene.database, {"a": 1}, id="m1")
    assert scene.mobile.send(scene.database, {"a": 1}, id="m1") == first
    with pytest.raises(Refused) as refused:
        scene.mobile.send(scene.database, {"a": 2}, id="m1")
    assert refused.value.status == 409


def test_a_long_block_is_renewed(
    hasty_exchange: ExchangeProcess, make_erp: Callable[[str], Erp]
) -> None:
    erp = make_erp("sqlite")
    database = unique("db")
    mobile, instance = hasty_exchange.client(unique("m")), hasty_exchange.client(unique("e"))
    mobile.send(database, 1, id="m1")
    connection = erp.connect()
    with instance.process(database, connection) as work:
        deadline = "select deadline from exchange.process where id = %s"
        (first,) = hasty_exchange.rows(deadline, work.id)[0]
        # More than a whole time-out later by the server's own clock.
        wait_until(
            lambda: hasty_exchange.rows(deadline, work.id)[0][0] > first + 2.2, what="renewed"
        )
        insert = "insert into orders (id, process_id) values ('m1', ?)"
        execute(erp.engine, connection, insert, (work.id,))
    connection.close()
    assert erp.orders() == ["m1"]
    assert hasty_exchange.states(database) == {"done": 1}
