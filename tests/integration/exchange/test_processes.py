"""API_1 to API_6: what each call answers, and where the files lie afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

import psycopg
import pytest

from postroad.testing import wait_until_async
from tests.fixtures.exchange import BASE, Caller, LocalExchange


async def _ready(local: LocalExchange, *ids: str) -> tuple[Caller, Caller, dict[str, Any]]:
    """A sender, an ERP, and its process with the named messages, prepared with one reply."""
    phone, erp = local.caller("phone"), local.caller("erp")
    for id_ in ids:
        await phone.send(id_)
    process = await erp.begin()
    reply = {"name": "r1", "recipient": "phone", "reply_to": ids[0], "body": {"ok": True}}
    assert await erp.prepare(process["id"], [reply]) == (200, {"status": "OK"})
    return phone, erp, process


async def test_a_full_cycle_moves_files_as_the_seed_says(exchange: LocalExchange) -> None:
    phone, erp, process = await _ready(exchange, "m1", "m2")
    assert (process["state"], process["received"]) == ("STARTED", [])
    assert exchange.files() == {
        "Messages": ["1_m1_from_phone_to_any.json", "2_m2_from_phone_to_any.json"],
        "Prepared": ["1_r1_from_erp_to_phone.json"],
    }
    assert await phone.replies() == []
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    assert exchange.files() == {
        "Messages": ["1_r1_from_erp_to_phone.json"],
        "Log": ["1_m1_from_phone_to_any.json", "2_m2_from_phone_to_any.json"],
    }
    (reply,) = await phone.replies()
    assert (reply["id"], reply["reply_to"], reply["body"]) == ("r1", "m1", {"ok": True})
    for _ in range(2):
        assert await phone.call("DELETE", "/messages/r1") == (200, {"status": "OK"})
    assert "Messages" not in exchange.files()
    assert "1_r1_from_erp_to_phone.json" in exchange.files()["Log"]
    await exchange.until_state(process["id"], "DONE")
    history = exchange.rows("select state from exchange.history order by number")
    assert [row["state"] for row in history] == ["STARTED", "READY_TO_COMMIT", "CLEANUP", "DONE"]


async def test_the_same_attempt_is_the_same_process_also_when_it_has_ended(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    assert (await erp.start(attempt="x"))["status"] == "IDLE"
    await phone.send("m1")
    first = await erp.start(attempt="x")
    assert first == await erp.start(attempt="x")
    await erp.end(first["process"]["id"], "fail", error="no")
    again = await erp.start(attempt="x")
    assert again["process"]["id"] == first["process"]["id"]
    assert again["process"]["state"] == "ABORTED"
    status, _ = await erp.call("POST", "/processes", json={"database": "other", "attempt": "x"})
    assert status == 409


async def test_one_process_per_database_and_per_recipient(exchange: LocalExchange) -> None:
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    for database in ("sales", "stock"):
        await phone.send(f"m-{database}", database)
    process = await erp.begin()
    busy = await other.start()
    assert (busy["status"], busy["holder"]) == ("BUSY", "erp")
    assert busy["since"] == process["started_at"]
    assert 1 <= busy["retry_after"] <= 60
    assert (await erp.start("stock"))["status"] == "BUSY"
    assert (await other.begin("stock"))["files"][0]["id"] == "m-stock"


async def test_twenty_callers_at_once_get_one_process(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    await phone.send("m1")
    callers = [exchange.caller(f"erp-{number}") for number in range(20)]
    answers = await asyncio.gather(*(caller.start() for caller in callers))
    assert sorted(answer["status"] for answer in answers) == ["BUSY"] * 19 + ["STARTED"]


async def test_recipients_get_their_own_and_exact_matches_only(exchange: LocalExchange) -> None:
    phone, one = exchange.caller("phone"), exchange.caller("1")
    await phone.send("for-12", recipient="12")
    await phone.send("for-1", recipient="1")
    await phone.send("for-any")
    assert [file["id"] for file in (await one.begin())["files"]] == ["for-1", "for-any"]
    status, _ = await one.call(
        "POST", "/processes", json={"database": "sales", "attempt": "y", "recipient": "12"}
    )
    assert status == 403
    granted = exchange.caller("deputy", recipients=["12"])
    assert (await granted.start(recipient="12"))["status"] == "BUSY"


async def test_order_limits_and_senders(exchange: LocalExchange) -> None:
    a, b, erp = (exchange.caller(name) for name in ("a", "b", "erp"))
    await a.send("a3", order=3, body="x" * 100)
    await a.send("a1", order=1, body="x" * 100)
    await b.send("b1", body="x" * 100)
    await a.send("a2", order=2, body="x" * 1000)

    async def handed(**wish: Any) -> list[str]:
        process = await erp.begin(**wish)
        await erp.end(process["id"], "abort", error="just looking")
        return [file["id"] for file in process["files"]]

    assert await handed(senders=["a"]) == ["a1", "a2", "a3"]
    assert await handed(senders=["b"]) == ["b1"]
    assert await handed(max_files=1) == ["a1"]
    assert await handed(max_bytes=500) == ["a1"]
    assert await handed(max_bytes=1200) == ["a1", "a2"]
    await erp.end((await erp.begin(max_files=1))["id"], "fail", error="x")
    process = await erp.begin(max_files=1)
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    assert await handed(max_bytes=500) == ["a2"]


async def test_large_files_come_by_link_and_are_checked(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    body = "y" * 300_000
    await phone.send("big", body=body)
    (file,) = (await erp.begin())["files"]
    assert "body" not in file
    answer = await erp.http.get(exchange.server.url + file["href"])
    assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
    assert answer.json() == body
    other = exchange.caller("other")
    assert (await other.http.get(exchange.server.url + file["href"])).status_code == 403


async def test_refused_files_are_deferred_with_a_reason_and_come_again(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for id_ in ("m1", "m2"):
        await phone.send(id_)
    process = await erp.begin()
    one, two = (file["name"] for file in process["files"])
    path = f"/processes/{process['id']}/files"
    choice = {"files": [one], "reason": "not mine", "delay": 0.2}
    for _ in range(2):
        assert await erp.call("PUT", path, json=choice) == (200, {"status": "OK"})
    assert (await erp.call("PUT", path, json={"files": [one, two]}))[0] == 409
    assert (await erp.call("PUT", path, json={"files": ["nonsense"]}))[0] == 422
    rows = exchange.rows("select state, error from exchange.message where id = 'm2'")
    assert rows == [{"state": "deferred", "error": "not mine"}]
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    assert exchange.files() == {"Log": [one], "Messages": [two]}

    async def again() -> Any:
        answer = await erp.start()
        return answer if answer["status"] == "STARTED" else None

    answer = await wait_until_async(again, what="the deferred file")
    assert [file["name"] for file in answer["process"]["files"]] == [two]


async def test_results_decide_per_file(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for id_ in ("good", "later", "bad"):
        await phone.send(id_)
    process = await erp.begin()
    good, later, bad = (file["name"] for file in process["files"])
    results = {
        later: {"status": "DEFERRED", "delay": 3600},
        bad: {"status": "INCORRECT", "error": "no such customer"},
    }
    assert (await erp.prepare(process["id"], results={"x": {"status": "PROCESSED"}}))[0] == 422
    await erp.prepare(process["id"], results=results)
    await erp.end(process["id"], "commit")
    assert exchange.files() == {"Log": [good], "Messages": [later], "Error": [bad]}
    rows = exchange.rows("select error from exchange.message where id = 'bad'")
    assert rows == [{"error": "no such customer"}]
    assert any(key.startswith("exchange/parked/") for key in exchange.alerts())
    admin = exchange.caller("admin", is_admin=True)
    assert (await erp.call("POST", "/messages/bad/requeue"))[0] == 403
    for id_ in ("bad", "later", "bad"):
        assert (await admin.call("POST", f"/messages/{id_}/requeue"))[0] == 200
    assert (await admin.call("POST", "/messages/good/requeue"))[0] == 409
    assert (await admin.call("POST", "/messages/none/requeue"))[0] == 404
    assert exchange.files()["Messages"] == sorted([later, bad])


async def test_abort_and_fail_put_everything_back(exchange: LocalExchange) -> None:
    _, erp, process = await _ready(exchange, "m1")
    for _ in range(2):
        assert await erp.end(process["id"], "abort", error="deadlock") == (200, {"status": "OK"})
    assert await erp.end(process["id"], "fail", error="same") == (200, {"status": "OK"})
    assert exchange.files() == {"Messages": ["1_m1_from_phone_to_any.json"]}
    assert (await erp.end(process["id"], "commit"))[0] == 409
    assert await erp.prepare(process["id"]) == (200, {"status": "CANCELLED"})
    again = await erp.begin()
    assert again["files"][0]["id"] == "m1"


async def test_contradictions_are_409_and_change_nothing(exchange: LocalExchange) -> None:
    _, erp, process = await _ready(exchange, "m1")
    id_ = process["id"]
    reply = {"name": "r1", "recipient": "phone", "reply_to": "m1", "body": {"ok": True}}
    assert await erp.prepare(id_, [reply]) == (200, {"status": "OK"})
    assert (await erp.prepare(id_, []))[0] == 409
    before = exchange.files()
    assert before["Prepared"] == ["1_r1_from_erp_to_phone.json"]
    await erp.end(id_, "commit")
    assert await erp.prepare(id_, [reply]) == (200, {"status": "OK"})
    for verb in ("abort", "fail"):
        assert (await erp.end(id_, verb, error="x"))[0] == 409
    assert (await erp.end(id_, "resolve", outcome="ABORTED"))[0] == 409
    assert await erp.end(id_, "resolve", outcome="COMMITTED") == (200, {"status": "OK"})
    assert await erp.end(id_, "commit") == (200, {"status": "OK"})


async def test_unknown_processes(exchange: LocalExchange) -> None:
    erp = exchange.caller("erp")
    for id_ in ("nonsense", "a%20b", "7b0c7c1e-0000-4000-8000-000000000000"):
        assert await erp.call("PUT", f"/processes/{id_}/files", json={"files": []}) == (
            200,
            {"status": "CANCELLED"},
        )
        assert await erp.prepare(id_) == (200, {"status": "CANCELLED"})
        upload = await erp.call("PUT", f"/processes/{id_}/replies/r?recipient=x", content=b"x")
        assert upload == (200, {"status": "CANCELLED"})
        for verb in ("commit", "abort", "fail", "renew"):
            assert (await erp.end(id_, verb))[0] == 404
        assert (await erp.end(id_, "resolve", outcome="ABORTED"))[0] == 404


async def test_only_the_owner_may(exchange: LocalExchange) -> None:
    _, _, process = await _ready(exchange, "m1")
    thief = exchange.caller("thief")
    id_ = process["id"]
    assert (await thief.call("PUT", f"/processes/{id_}/files", json={"files": []}))[0] == 403
    assert (await thief.prepare(id_))[0] == 403
    for verb in ("commit", "abort", "fail", "renew"):
        assert (await thief.end(id_, verb))[0] == 403
    stranger = exchange.caller("stranger", databases=["stock"])
    assert (await stranger.end(id_, "resolve", outcome="ABORTED"))[0] == 403
    assert (await thief.end(id_, "resolve", outcome="INFLIGHT"))[0] == 200
    assert exchange.state(id_) == "READY_TO_COMMIT"


async def test_uploaded_replies_are_named_by_their_digest(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    path = f"/processes/{process['id']}/replies/scan?recipient=phone"
    content = b"z" * 3_000_000
    digest = hashlib.sha256(content).hexdigest()
    await erp.call("PUT", path, content=b"first try")
    for _ in range(2):
        status, answer = await erp.call("PUT", path, content=content)
        assert (status, answer["status"], answer["sha256"]) == (200, "OK", digest)
    wrong = [{"name": "scan", "recipient": "phone", "sha256": "0" * 64}]
    assert (await erp.prepare(process["id"], wrong))[0] == 409
    right = [{"name": "scan", "recipient": "phone", "sha256": digest}]
    assert await erp.prepare(process["id"], right) == (200, {"status": "OK"})
    await erp.end(process["id"], "commit")
    (reply,) = await phone.replies()
    fetched = await phone.http.get(exchange.server.url + reply["href"])
    assert fetched.content == content
    assert exchange.files()["Messages"] == [
        "2_scan_from_erp_to_phone.bin",
        "2_scan_from_erp_to_phone.json",
    ]


async def _unfinished(caller: Caller, method: str, path: str) -> asyncio.StreamReader:
    """Send the head of a request and one byte of its large body; return where the answer comes."""
    url = caller.local.server.url.removeprefix("http://")
    host, _, port = url.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"{method} {BASE}{path} HTTP/1.1",
        f"Host: {url}",
        f"Authorization: Bearer {caller.token}",
        "Content-Type: application/json",
        f"Content-Length: {4 << 20}",
    )
    writer.write("\r\n".join([*head, "", "{"]).encode())
    await writer.drain()
    caller.local.unfinished.append(writer)
    return reader


async def test_bodies_that_never_end_hold_up_nobody(exchange: LocalExchange) -> None:
    slow, phone = exchange.caller("slow"), exchange.caller("phone")
    await slow.send("small")
    for _ in range(3):
        await _unfinished(slow, "POST", "/messages")
    assert (await slow.call("GET", "/messages"))[0] == 200
    async with asyncio.timeout(20):
        await phone.send("large", body="x" * (2 << 20))


async def test_an_upload_to_another_clients_process_is_refused_unread(
    exchange: LocalExchange,
) -> None:
    _, _, process = await _ready(exchange, "m1")
    answer = await _unfinished(
        exchange.caller("thief"), "PUT", f"/processes/{process['id']}/replies/r?recipient=x"
    )
    async with asyncio.timeout(20):
        assert (await answer.readline()).startswith(b"HTTP/1.1 403 ")


async def test_an_upload_whose_journal_answer_was_lost_keeps_its_file(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    path = f"/processes/{process['id']}/replies/scan?recipient=phone"
    assert exchange.server.journal is not None
    journal = exchange.server.journal
    change = journal.change

    async def commit_and_lose_the_answer(*arguments: Any) -> Any:
        await change(*arguments)
        raise psycopg.OperationalError("the connection was lost in COMMIT")

    monkeypatch.setattr(journal, "change", commit_and_lose_the_answer)
    assert (await erp.call("PUT", path, content=b"x" * 1000))[0] == 503
    monkeypatch.undo()
    assert (await erp.call("PUT", path, content=b"x" * 1000))[0] == 200
    digest = hashlib.sha256(b"x" * 1000).hexdigest()
    reply = {"name": "scan", "recipient": "phone", "sha256": digest}
    assert await erp.prepare(process["id"], [reply]) == (200, {"status": "OK"})
    await erp.end(process["id"], "commit")
    assert [one["sha256"] for one in await phone.replies()] == [digest]
    assert exchange.alerts() == []


async def test_replies_of_one_name_stay_apart(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number in range(3):
        await phone.send(f"m{number}")
        process = await erp.begin()
        reply = {"name": "r", "recipient": "phone", "body": number}
        await erp.prepare(process["id"], [reply])
        await erp.end(process["id"], "commit")
    replies = await phone.replies()
    assert [reply["body"] for reply in replies] == [0, 1, 2]
    assert len({reply["id"] for reply in replies}) == 3
    _, page = await phone.call("GET", "/messages?limit=2")
    assert [reply["body"] for reply in page["items"]] == [0, 1]
    _, rest = await phone.call("GET", f"/messages?limit=2&cursor={page['cursor']}")
    assert ([reply["body"] for reply in rest["items"]], rest["cursor"]) == ([2], None)
    assert (await phone.call("GET", "/messages?cursor=x"))[0] == 422
    for reply in replies:
        await phone.call("DELETE", f"/messages/{reply['id']}")
    assert await phone.replies() == []
    assert (await erp.call("DELETE", "/messages/r"))[0] == 404


async def test_replies_may_be_named_as_others_would_be(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number, names in enumerate((["x"], [f"x.{n}" for n in range(2, 9)] + ["x"])):
        await phone.send(f"m{number}")
        process = await erp.begin()
        replies = [{"name": name, "recipient": "phone", "body": name} for name in names]
        await erp.prepare(process["id"], replies)
        await erp.end(process["id"], "commit")
    found = await phone.replies()
    assert [reply["body"] for reply in found].count("x") == 2
    assert len({reply["id"].lower() for reply in found}) == len(found) == 9


async def test_events_of_a_process_are_on_the_bus(exchange: LocalExchange) -> None:
    _, erp, process = await _ready(exchange, "m1")
    await erp.end(process["id"], "commit")
    await exchange.until_state(process["id"], "DONE")
    events = exchange.rows(
        "select (c).data from generate_series(1, 10) n,"
        " lateral (select mbus.consume_exchange_events_by_default() c where n > 0) s"
    )
    found = [event["data"] for event in events if event["data"]]
    assert [event["state"] for event in found] == ["STARTED", "READY_TO_COMMIT", "CLEANUP", "DONE"]
    assert {event["process"] for event in found} == {process["id"]}


async def test_administrators_see_everything_in_pages(exchange: LocalExchange) -> None:
    phone, erp, process = await _ready(exchange, "m1")
    admin = exchange.caller("admin", is_admin=True)
    for path in ("/processes", f"/processes/{process['id']}", "/databases", "/clients", "/servers"):
        assert (await erp.call("GET", path))[0] == 403
        assert (await admin.call("GET", path))[0] == 200
    _, shown = await admin.call("GET", f"/processes/{process['id']}")
    assert [step["state"] for step in shown["history"]] == ["STARTED", "READY_TO_COMMIT"]
    assert shown["received"] == ["r1"]
    _, page = await admin.call("GET", "/clients?limit=2")
    _, rest = await admin.call("GET", f"/clients?limit=2&cursor={page['cursor']}")
    names = [item["id"] for item in page["items"] + rest["items"]]
    assert names == ["admin", "erp", "phone"]
    assert "secret_hash" not in page["items"][0]
    _, servers = await admin.call("GET", "/servers")
    (server,) = servers["items"]
    assert server["holder"].endswith(f":{os.getpid()}")
    assert server["is_sweeper"] is True
    assert (await admin.end(process["id"], "release"))[0] == 422
    assert (await admin.end(process["id"], "release", outcome="COMMITTED"))[0] == 200
    assert len(await phone.replies()) == 1


async def test_uploads_of_one_name_to_one_recipient_at_once_are_two_replies(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    digest = hashlib.sha256(b"u").hexdigest()
    ready = []
    for number in range(6):
        erp = exchange.caller(f"erp{number}")
        await phone.send(f"m{number}", f"d{number}")
        process = await erp.begin(f"d{number}")
        await erp.call("PUT", f"/processes/{process['id']}/replies/same", content=b"u")
        ready.append((erp, process["id"]))
    reply = {"name": "same", "recipient": "phone", "sha256": digest}
    answers = await asyncio.gather(*(erp.prepare(process, [reply]) for erp, process in ready))
    assert answers == [(200, {"status": "OK"})] * 6
    for erp, process in ready:
        assert await erp.end(process, "commit") == (200, {"status": "OK"})
    replies = await phone.replies()
    assert [reply["name"] for reply in replies] == ["same"] * 6
    assert len({reply["id"] for reply in replies}) == 6


async def test_a_reply_acknowledged_at_once_leaves_no_process_open(exchange: LocalExchange) -> None:
    """The acknowledgement moves a file of the process before it was recorded as DONE."""
    await exchange.restart(sweep_interval="1h")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number in range(5):
        await phone.send(f"m{number}")
        process = await erp.begin()
        await erp.prepare(process["id"], [{"name": f"r{number}", "recipient": "phone", "body": 1}])
        await erp.end(process["id"], "commit")
        assert (await phone.call("DELETE", f"/messages/r{number}"))[0] == 200
        await exchange.until_state(process["id"], "DONE")


async def test_a_decided_process_without_files_to_move_is_ended_by_a_sweep(
    exchange: LocalExchange,
) -> None:
    """Its server died between the decision and the record."""
    _, erp, process = await _ready(exchange, "m1")
    await erp.end(process["id"], "commit")
    await exchange.until_state(process["id"], "DONE")
    exchange.rows("update exchange.process set state = 'CLEANUP', ended_at = null returning 1")
    await exchange.until_state(process["id"], "DONE")
