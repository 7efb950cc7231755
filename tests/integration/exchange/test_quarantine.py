"""A file that is edited or lost: found, put aside, told; and never a reason to do work twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.exchange import operations
from postroad.exchange.check import check
from postroad.exchange.errors import StorageFailed
from postroad.exchange.files import Storage
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from tests.fixtures.exchange import Caller, LocalExchange, stored

REPLY = {"name": "r1", "recipient": "phone", "body": 1}
NAME, ANSWER = "1_m1_from_phone_to_any.json", "1_r1_from_erp_to_phone.json"


def _look(local: LocalExchange, *, is_fixing: bool = True) -> list[str]:
    with psycopg.connect(local.dsn) as connection:
        return [one.kind for one in check(connection, Storage(local.root), is_fixing=is_fixing)]


def _state(local: LocalExchange, id_: str) -> str:
    rows = local.rows("select state from exchange.message where id = %s", id_)
    return str(rows[0]["state"])


def _advice(local: LocalExchange) -> str:
    rows = local.rows(
        "select body from alerts.report where key like 'exchange/corrupt/%' and is_raise"
        " order by id"
    )
    return str(rows[-1]["body"])


async def _requeue(local: LocalExchange, id_: str, **more: Any) -> tuple[int, Any]:
    admin = local.caller(f"admin-{id_}", is_admin=True)
    return await admin.call("POST", f"/messages/{id_}/requeue", json=more)


async def _ready(
    local: LocalExchange, *replies: Any, results: Any = None, **wishes: Any
) -> tuple[Caller, Caller, str]:
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    process = await erp.begin(**wishes)
    await erp.prepare(process["id"], replies, results)
    return phone, erp, process["id"]


async def test_a_file_lost_before_commit_leaves_the_message_done(exchange: LocalExchange) -> None:
    _, erp, process = await _ready(exchange)
    (exchange.root / "sales/Messages" / NAME).unlink()
    assert await erp.end(process, "commit") == (200, {"status": "OK"})
    assert _state(exchange, "m1") == "done"
    await exchange.until_state(process, "DONE")
    assert "requeue" not in _advice(exchange)
    # Whoever puts the file back and requeues it does not make it be done twice.
    (exchange.root / "sales/Error" / NAME).write_bytes(stored({"id": "m1"}))
    assert (await _requeue(exchange, "m1"))[0] == 409
    assert (await erp.start())["status"] == "IDLE"


async def test_a_file_edited_in_log_stays_done(exchange: LocalExchange) -> None:
    _, erp, process = await _ready(exchange)
    await erp.end(process, "commit")
    (exchange.root / "sales/Log" / NAME).write_text("1")
    assert _look(exchange) == ["changed"]
    assert _look(exchange) == []
    assert _state(exchange, "m1") == "done"
    assert exchange.files() == {"Error": [NAME]}
    assert (await _requeue(exchange, "m1"))[0] == 409


@pytest.mark.parametrize(
    ("verb", "state"), [("commit", "done"), ("abort", "parked")], ids=["commit", "abort"]
)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["ready", "in-doubt"])
async def test_while_the_outcome_is_open_it_decides(
    exchange: LocalExchange, verb: str, state: str, is_restarted: bool
) -> None:
    _, erp, process = await _ready(exchange, REPLY)
    if is_restarted:
        await exchange.restart()
    place = exchange.root / "sales" / ("Unknown" if is_restarted else "Messages") / NAME
    place.write_text("1")
    assert _look(exchange) == ["changed"]
    assert _state(exchange, "m1") == ("unknown" if is_restarted else "leased")
    assert await erp.end(process, verb) == (200, {"status": "OK"})
    assert _state(exchange, "m1") == state
    assert NAME in exchange.files()["Error"]
    assert (await erp.start())["status"] == "IDLE"
    # What was told while it was open holds no longer.
    assert len(exchange.alerts()) == (0 if verb == "commit" else 1)
    assert ("requeue m1" in _advice(exchange)) == (verb == "abort")


async def test_what_a_started_process_may_have_read_cancels_it(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    await phone.send("m2")
    process = await erp.begin()
    (exchange.root / "sales/Messages" / NAME).write_text("1")
    again = await erp.start(attempt="a1")
    assert again["process"]["state"] == "CANCELLED"
    assert await erp.prepare(process["id"]) == (200, {"status": "CANCELLED"})
    assert _state(exchange, "m1") == "parked"
    assert [file["id"] for file in (await erp.begin())["files"]] == ["m2"]


async def test_a_reply_in_quarantine_waits_again_when_its_file_is_right(
    exchange: LocalExchange,
) -> None:
    phone, erp, process = await _ready(exchange, REPLY)
    await erp.end(process, "commit")
    file = exchange.root / "sales/Messages" / ANSWER
    good = file.read_bytes()
    file.write_bytes(b"2")
    assert await phone.replies() == []
    assert _state(exchange, "r1") == "parked"
    (exchange.root / "sales/Error" / ANSWER).write_bytes(good)
    assert await _requeue(exchange, "r1", sender="erp") == (
        200,
        {"status": "OK", "state": "waiting"},
    )
    assert [reply["body"] for reply in await phone.replies()] == [1]
    assert exchange.alerts() == []
    assert (await phone.call("DELETE", "/messages/r1"))[0] == 200


@pytest.mark.parametrize(("verb", "count"), [("commit", 1), ("abort", 0)])
async def test_a_reply_lost_before_the_outcome_is_seen_only_if_it_committed(
    exchange: LocalExchange, verb: str, count: int
) -> None:
    phone, erp, process = await _ready(exchange, REPLY)
    file = exchange.root / "sales/Prepared" / ANSWER
    good = file.read_bytes()
    file.unlink()
    assert _look(exchange) == ["missing"]
    assert await erp.end(process, verb) == (200, {"status": "OK"})
    assert await phone.replies() == []
    if verb == "commit":
        assert "requeue r1" in _advice(exchange)
        (exchange.root / "sales/Error" / ANSWER).write_bytes(good)
        assert (await _requeue(exchange, "r1"))[0] == 200
    else:
        assert (await _requeue(exchange, "r1"))[0] == 404
        assert exchange.alerts() == []
    assert len(await phone.replies()) == count


async def test_a_requeue_without_the_file_says_so(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    (exchange.root / "sales/Messages" / NAME).unlink()
    assert _look(exchange) == ["missing"]
    status, problem = await _requeue(exchange, "m1")
    assert (status, "missing" in problem["detail"]) == (409, True)
    assert _state(exchange, "m1") == "parked"
    assert (await erp.start())["status"] == "IDLE"


async def test_a_file_lost_before_it_was_marked_is_parked_and_comes_again(
    exchange: LocalExchange,
) -> None:
    """Its plan is still open: nobody can tell whether its sender was answered."""
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    await _marked(exchange)
    await exchange.server.stop()
    exchange.rows(
        "insert into exchange.move (number, temporary)"
        " select number, '.new-gone' from exchange.message returning number"
    )
    (exchange.root / "sales/Messages" / NAME).unlink()
    await exchange.restart()
    assert _state(exchange, "m1") == "parked"
    assert [key.rsplit("/", 1)[0] for key in exchange.alerts()] == ["exchange/corrupt"]
    answer = await phone.send("m1")
    assert answer["name"] == NAME
    assert exchange.alerts() == []
    assert [file["body"] for file in (await erp.begin())["files"]] == [{"id": "m1"}]
    await _marked(exchange)
    assert _look(exchange, is_fixing=False) == []


async def _marked(local: LocalExchange) -> None:
    async def is_so() -> bool:
        return not local.rows("select from exchange.move")

    await wait_until_async(is_so, what="no plan is open")


async def test_an_acknowledged_reply_is_not_missed_where_it_lay_before(
    exchange: LocalExchange,
) -> None:
    """Whoever looked before a decision, and misses the file after it, has found nothing."""
    phone, erp, process = await _ready(exchange, REPLY)
    await erp.end(process, "commit")
    (reply,) = exchange.rows("select number from exchange.message where id = 'r1'")
    await phone.call("DELETE", "/messages/r1")
    await _marked(exchange)
    found = exchange.rows(
        "select exchange.quarantine(null, %s, null, 'missing', false, 'Messages') as verdict",
        reply["number"],
    )
    assert found == [{"verdict": "stale"}]
    assert exchange.files()["Log"] == sorted([NAME, ANSWER])


async def test_a_strangers_file_is_put_aside_and_never_overwritten(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m0")
    stranger = exchange.root / "sales/Messages/2_m1_from_phone_to_any.json"
    stranger.write_text("not yours")
    await phone.send("m1")
    aside = [Path(name) for name in exchange.files()["Error"]]
    assert [name.name.rsplit("-", 1)[1] for name in aside] == [stranger.name]
    assert (exchange.root / "sales/Error" / aside[0]).read_text() == "not yours"
    assert [file["body"] for file in (await erp.begin())["files"]] == [{"id": "m0"}, {"id": "m1"}]
    assert _look(exchange, is_fixing=False) == []


async def test_a_reply_that_was_read_is_acknowledged_though_its_file_is_bad(
    exchange: LocalExchange,
) -> None:
    phone, erp, process = await _ready(exchange, REPLY)
    await erp.end(process, "commit")
    assert len(await phone.replies()) == 1
    (exchange.root / "sales/Messages" / ANSWER).write_text("2")
    assert _look(exchange) == ["changed"]
    for _ in range(2):
        assert (await phone.call("DELETE", "/messages/r1"))[0] == 200
    assert _state(exchange, "r1") == "done"
    assert exchange.alerts() == []
    assert (await _requeue(exchange, "r1"))[0] == 409


async def test_a_file_that_was_put_back_waits_for_its_requeue(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    file = exchange.root / "sales/Messages" / NAME
    good = file.read_bytes()
    file.unlink()
    assert _look(exchange) == ["missing"]
    (exchange.root / "sales/Error" / NAME).write_bytes(good)
    assert _look(exchange) == []
    assert (await _requeue(exchange, "m1"))[0] == 200
    assert [file["id"] for file in (await erp.begin())["files"]] == ["m1"]


async def test_a_reply_lost_while_it_was_stored_is_not_promised(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = (await erp.begin())["id"]
    write = Storage.write

    def lose(storage: Storage, database: str, folder: str, name: str, content: bytes) -> None:
        write(storage, database, folder, name, content)
        storage.unlink(database, folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "write", lose)
        assert (await erp.prepare(process, [REPLY]))[0] == 503
    # Sent again, it takes the place of what was lost.
    assert await erp.prepare(process, [REPLY]) == (200, {"status": "OK"})
    assert exchange.alerts() == []
    await erp.end(process, "commit")
    assert [reply["body"] for reply in await phone.replies()] == [1]


async def test_a_reply_uploaded_and_lost_is_not_promised_again(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = (await erp.begin())["id"]
    path = f"/processes/{process}/replies/r1?recipient=phone"
    _, uploaded = await erp.call("PUT", path, content=b"1")
    named = {"name": "r1", "recipient": "phone", "sha256": uploaded["sha256"]}
    assert await erp.prepare(process, [named]) == (200, {"status": "OK"})
    next((exchange.root / "sales/Prepared").glob("*.bin")).unlink()
    assert _look(exchange) == ["missing"]
    status, problem = await erp.prepare(process, [named])
    assert (status, problem["code"]) == (409, "MX040")


async def test_what_a_restored_database_lost_and_has_a_bad_file_is_parked(
    exchange: LocalExchange,
) -> None:
    _, erp, process = await _ready(exchange, marker_seq=0)
    await erp.end(process, "commit")
    file = exchange.root / "sales/Log" / NAME
    good = file.read_bytes()
    file.write_text("1")
    assert _look(exchange) == ["changed"]
    assert run_blocking(exchange.dsn, operations.replay, "sales", from_seq=0) == 0
    assert (_state(exchange, "m1"), "requeue m1" in _advice(exchange)) == ("parked", True)
    (exchange.root / "sales/Error" / NAME).write_bytes(good)
    assert (await _requeue(exchange, "m1"))[0] == 200
    assert [file["id"] for file in (await erp.begin(marker_seq=0))["files"]] == ["m1"]
    assert exchange.alerts() == []


async def test_what_was_rejected_stays_so_when_its_lost_file_comes_again(
    exchange: LocalExchange,
) -> None:
    results = {NAME: {"status": "INCORRECT", "error": "no such article"}}
    phone, erp, process = await _ready(exchange, results=results)
    (exchange.root / "sales/Messages" / NAME).unlink()
    await erp.end(process, "commit")
    assert _state(exchange, "m1") == "parked"
    await phone.send("m1")
    assert _state(exchange, "m1") == "parked"
    assert [key.rsplit("/", 1)[0] for key in exchange.alerts()] == ["exchange/parked"]
    assert exchange.files() == {"Error": [NAME]}
    assert (await _requeue(exchange, "m1"))[0] == 200
    assert [file["body"] for file in (await erp.begin())["files"]] == [{"id": "m1"}]
    assert exchange.alerts() == []


async def test_what_was_put_back_without_its_file_takes_the_one_that_comes(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(sweep_interval="1h")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    (exchange.root / "sales/Messages" / NAME).unlink()
    assert _look(exchange) == ["missing"]
    # The server follows such plans later: the sender is quicker.
    with psycopg.connect(exchange.dsn) as connection:
        run_blocking(exchange.dsn, operations.requeue, "m1")
        connection.execute("update exchange.move set planned_at = planned_at + interval '1 h'")
    await phone.send("m1")
    assert [file["body"] for file in (await erp.begin())["files"]] == [{"id": "m1"}]
    assert exchange.alerts() == []


async def test_a_file_that_is_lost_while_it_is_picked_leaves_the_others(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(sweep_interval="1h")
    # The first sweep would cancel the process before it is compared.
    await exchange.server.signals.wait("swept")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    await phone.send("m2")
    await _marked(exchange)
    (exchange.root / "sales/Messages" / NAME).unlink()
    exchange.rows(
        "insert into exchange.move (number, source, planned_at)"
        " select number, 'Error', exchange.now() + interval '1 h' from exchange.message"
        " where id = 'm1' returning number"
    )
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["m2"]
    assert exchange.state(process["id"]) == "STARTED"
    assert _state(exchange, "m1") == "parked"


@pytest.mark.parametrize("is_link", [True, False])
async def test_a_folder_that_cannot_be_used_quarantines_none_of_its_messages(
    exchange: LocalExchange, is_link: bool
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number in range(3):
        await phone.send(f"m{number}")
    folder, elsewhere = exchange.root / "sales/Messages", exchange.root / ".elsewhere"
    folder.rename(elsewhere)
    if is_link:
        folder.symlink_to(elsewhere)
    start = {"database": "sales", "attempt": "a"}
    status, _ = await erp.call("POST", "/processes", json=start)
    if is_link:
        with psycopg.connect(exchange.dsn) as connection, pytest.raises(StorageFailed):
            check(connection, Storage(exchange.root), is_fixing=True)
        folder.unlink()
    elsewhere.rename(folder)
    assert status == 503
    _, answer = await erp.call("POST", "/processes", json=start)
    assert len(answer["process"]["files"]) == 3
    assert exchange.alerts() == []
