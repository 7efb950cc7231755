"""Intake: durable before told, repeatable, one file per message, nothing but safe names."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from postroad.exchange import operations
from postroad.exchange.content import stored_json
from postroad.exchange.errors import ExchangeError
from postroad.exchange.intake import Arrival
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from tests.fixtures.exchange import LocalExchange, stored


async def test_a_message_lies_as_a_readable_file_when_it_is_answered(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    body = {"order": 17, "имя": "Смородина"}
    status, answer = await phone.call(
        "POST",
        "/messages",
        json={"id": "m1", "database": "sales", "recipient": "erp", "body": body},
    )
    assert status == 201
    assert answer["status"] == "OK"
    assert exchange.files() == {"Messages": ["1_m1_from_phone_to_erp.json"]}
    content = (exchange.root / "sales/Messages/1_m1_from_phone_to_erp.json").read_bytes()
    assert content == stored(body)
    assert answer["sha256"] == hashlib.sha256(content).hexdigest()
    assert answer["size"] == len(content)


async def test_the_same_again_is_200_and_the_same_answer_other_content_409(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    message = {"id": "m1", "database": "sales", "body": [1, 2]}
    first = await phone.call("POST", "/messages", json=message)
    again = await phone.call("POST", "/messages", json=message)
    assert (first[0], again[0]) == (201, 200)
    assert first[1] == again[1]
    for change in ({"body": [1]}, {"recipient": "x"}, {"order": 1}, {"database": "other"}):
        status, problem = await phone.call("POST", "/messages", json={**message, **change})
        assert (status, problem["code"]) == (409, "exchange_message_conflict")
    assert exchange.files() == {"Messages": ["1_m1_from_phone_to_any.json"]}
    assert [path.name for path in exchange.root.iterdir() if path.is_dir()] == ["sales"]
    assert exchange.rows("select id from exchange.database") == [{"id": "sales"}]


async def test_a_message_id_is_unique_per_sender_only(exchange: LocalExchange) -> None:
    for name in ("a", "b"):
        await exchange.caller(name).send("m1")
    assert len(exchange.files()["Messages"]) == 2


async def test_other_content_lies_as_the_senders_bytes_beside_a_head(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    content = bytes(range(256))
    await phone.send(
        "scan", content_base64=base64.b64encode(content).decode(), media_type="image/png"
    )
    folder = exchange.root / "sales/Messages"
    assert (folder / "1_scan_from_phone_to_any.bin").read_bytes() == content
    assert '"image/png"' in (folder / "1_scan_from_phone_to_any.json").read_text()
    process = await exchange.caller("erp").begin()
    (file,) = process["files"]
    assert base64.b64decode(file["content_base64"]) == content
    assert file["sha256"] == hashlib.sha256(content).hexdigest()


async def test_a_group_is_one_file_handled_as_a_whole(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    group = [{"id": "x", "body": 1}, {"id": "y", "body": {"a": None}}]
    await phone.send("g1", messages=group)
    process = await exchange.caller("erp").begin()
    assert [file["body"] for file in process["files"]] == [group]


HOSTILE = ("../x", "a/b", "a\\b", ".x", "", "x" * 65, "x" * 300, "a\x00b", "ä", "a b", "-a", "a\n")


async def test_hostile_ids_are_422_and_leave_nothing(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    for field in ("id", "database", "recipient"):
        for bad in HOSTILE:
            message = {"id": "m", "database": "sales", "body": 1, field: bad}
            status, problem = await phone.call("POST", "/messages", json=message)
            assert status == 422, (field, bad, problem)
            assert problem["detail"]
    assert exchange.rows("select from exchange.message") == []
    assert [path.name for path in exchange.root.iterdir() if path.name[0] != "."] == []
    assert not (exchange.root.parent / "x").exists()


async def test_ids_that_differ_by_case_alone_are_refused(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    await phone.send("A", "Sales")
    assert (
        await phone.call("POST", "/messages", json={"id": "a", "database": "Sales", "body": 1})
    )[0] == 422
    assert (
        await phone.call("POST", "/messages", json={"id": "b", "database": "sales", "body": 1})
    )[0] == 422
    assert [path.name for path in exchange.root.iterdir() if path.name[0] != "."] == ["Sales"]


UNREADABLE = (
    b"{",
    b"[]",
    b'{"id": "m", "database": "sales"}',
    b'{"id": "m", "database": "sales", "body": NaN}',
    b'{"id": "m", "database": "sales", "body": "\\ud800"}',
    b'{"id": "m", "database": "sales", "body": 1, "content_base64": "eA=="}',
    b'{"id": "m", "database": "sales", "content_base64": "?"}',
    b'{"id": "m", "database": "sales", "messages": []}',
    b'{"id": "m", "database": "sales", "body": 1, "order": "1"}',
    b'{"id": "m", "database": "sales", "body": 1, "order": 9999999999999999999}',
    b'{"id": "m", "database": "sales", "body": ' + b"[" * 5000 + b"]" * 5000 + b"}",
)


async def test_bodies_that_cannot_be_meant_are_422(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    for body in UNREADABLE:
        status, problem = await phone.call(
            "POST", "/messages", content=body, headers={"Content-Type": "application/json"}
        )
        assert (status, problem["status"]) == (422, 422), (body[:60], problem)


async def test_numbers_keep_their_digits(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    body: Any = {"big": 123456789012345678901234567890, "small": 0.1}
    await phone.send("m1", body=body)
    process = await exchange.caller("erp").begin()
    assert process["files"][0]["body"] == body


async def test_a_body_above_the_limit_is_413(exchange: LocalExchange) -> None:
    await exchange.restart(body_limit=2048)
    phone = exchange.caller("phone")
    status, problem = await phone.call(
        "POST", "/messages", json={"id": "m", "database": "sales", "body": "x" * 3000}
    )
    assert (status, problem["code"]) == (413, "web_body_too_large")


async def test_a_database_must_be_known_where_the_setting_says_so(exchange: LocalExchange) -> None:
    await exchange.restart(creates_databases=False)
    phone = exchange.caller("phone")
    message = {"id": "m", "database": "sales", "body": 1}
    assert (await phone.call("POST", "/messages", json=message))[0] == 404
    assert not (exchange.root / "sales").exists()
    exchange.rows("select exchange.add_database('sales')")
    assert (await phone.call("POST", "/messages", json=message))[0] == 201


async def test_planted_links_and_pipes_lead_nowhere(exchange: LocalExchange, tmp_path: Any) -> None:
    phone = exchange.caller("phone")
    (exchange.root / "evil").symlink_to(tmp_path)
    status, _ = await phone.call(
        "POST", "/messages", json={"id": "m", "database": "evil", "body": 1}
    )
    assert status == 503
    assert list(tmp_path.iterdir()) == []
    await phone.send("m1")
    name = "1_m1_from_phone_to_any.json"
    (exchange.root / "sales/Messages" / name).unlink()
    os.mkfifo(exchange.root / "sales/Messages" / name)
    assert (await exchange.caller("erp").start())["status"] == "IDLE"
    assert [key.rsplit("/", 1)[0] for key in exchange.alerts()] == ["exchange/corrupt"]


async def test_an_unusable_folder_of_one_database_fails_its_own_messages_only(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    await phone.send("first", "good")
    await phone.send("first.bad", "bad")
    shutil.rmtree(exchange.root / "bad/Messages")
    (exchange.root / "bad/Messages").write_text("a file where a folder belongs")
    assert exchange.server.intake is not None
    intake = exchange.server.intake
    databases = ["good", "bad"] * 40
    taken = await asyncio.gather(
        *(
            intake.take(Arrival("phone", database, f"m{number}", None, None, stored_json(number)))
            for number, database in enumerate(databases)
        ),
        return_exceptions=True,
    )
    by_database = {
        name: [one for one, of in zip(taken, databases, strict=True) if of == name]
        for name in databases
    }
    assert [one for one in by_database["good"] if not isinstance(one, dict)] == []
    assert [one for one in by_database["bad"] if not isinstance(one, ExchangeError)] == []
    hidden = [one.name for one in (exchange.root / "good/Messages").iterdir() if one.name[0] == "."]
    assert hidden == []


async def test_what_was_written_for_a_refused_batch_is_removed(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    await exchange.caller("phone").send("first")
    assert exchange.server.intake is not None
    intake = exchange.server.intake

    async def refuse(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(intake, "_record", refuse)
    arrival = Arrival("phone", "sales", "m1", None, None, stored_json(1))
    with pytest.raises(MemoryError):
        await intake.take(arrival)

    async def is_removed() -> bool:
        names = [one.name for one in (exchange.root / "sales/Messages").iterdir()]
        return names == ["1_first_from_phone_to_any.json"]

    await wait_until_async(is_removed, what="the temporary file is removed")


async def test_who_is_unknown_or_has_no_rights_is_refused(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone", databases=["other"])
    message = {"id": "m", "database": "sales", "body": 1}
    assert (await phone.call("POST", "/messages", json=message))[0] == 403
    phone.http.headers["Authorization"] = "Bearer nonsense"
    assert (await phone.call("POST", "/messages", json=message))[0] == 401
    del phone.http.headers["Authorization"]
    assert (await phone.call("POST", "/messages", json=message))[0] == 401


async def test_who_sends_again_at_once_is_not_left_waiting(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next message comes before the task that served the last one is seen to have ended."""
    monkeypatch.setattr("postroad.exchange.intake.MAX_BATCHES", 1)
    assert exchange.server.intake is not None
    intake = exchange.server.intake
    async with asyncio.timeout(20):
        for number in range(3):
            arrival = Arrival("phone", "sales", f"m{number}", None, None, stored_json(number))
            assert (await intake.take(arrival))["sequence"] == number + 1


def test_a_database_made_by_several_at_once_is_one(database: str) -> None:
    """Their inserts meet in either of two indexes; in none of them is it an error."""
    makers, names = 6, [f"db{number}" for number in range(30)]
    meeting = threading.Barrier(makers)

    def make() -> None:
        for name in names:
            meeting.wait(30)
            run_blocking(database, operations.add_database, name)

    with ThreadPoolExecutor(makers) as threads:
        for made in [threads.submit(make) for _ in range(makers)]:
            made.result()
    with psycopg.connect(database) as connection:
        rows = connection.execute("select id from exchange.database").fetchall()
    assert sorted(row[0] for row in rows) == sorted(names)


async def test_a_renewed_token_replaces_the_old_one(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.web.identity.REMEMBERED_SECONDS", 0.1)
    phone = exchange.caller("phone")
    await phone.send("m1")
    token = run_blocking(exchange.dsn, operations.renew_client, "phone")["token"]

    async def is_refused() -> bool:
        return (await phone.call("GET", "/messages"))[0] == 401

    await wait_until_async(is_refused, what="the old token is refused")
    phone.http.headers["Authorization"] = f"Bearer {token}"
    await phone.send("m1")
