"""Who is served next: senders take turns by arrival, each in its own order; pages and attempts."""

from __future__ import annotations

import asyncio

import psycopg

from tests.fixtures.exchange import LocalExchange


async def test_an_order_is_one_senders_and_starves_nobody(exchange: LocalExchange) -> None:
    ordered, plain, erp = (exchange.caller(name) for name in ("aaa", "bbb", "erp"))
    await plain.send("old")
    for number in (3, 1, 2):
        await ordered.send(f"n{number}", order=number)
    await plain.send("late")
    process = await erp.begin(max_files=3)
    assert [file["id"] for file in process["files"]] == ["old", "n1", "n2"]
    await erp.end(process["id"], "abort")
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["old", "n1", "n2", "n3", "late"]
    await erp.end(process["id"], "abort")
    process = await erp.begin(senders=["aaa", "bbb"], max_files=2)
    assert [file["id"] for file in process["files"]] == ["old", "n1"]


async def test_a_message_that_is_passed_over_keeps_no_turn_for_its_sender(
    exchange: LocalExchange,
) -> None:
    ordered, plain, erp = (exchange.caller(name) for name in ("aaa", "bbb", "erp"))
    await ordered.send("late", order=1000)
    await plain.send("waits")
    got = []
    for number in range(3):
        await ordered.send(f"n{number}", order=number)
        process = await erp.begin(max_files=1)
        got += [file["id"] for file in process["files"]]
        # What comes back, comes back in the turn in which it was handed out.
        await erp.end(process["id"], "abort")
        process = await erp.begin(max_files=1)
        got += [file["id"] for file in process["files"]]
        await erp.prepare(process["id"])
        await erp.end(process["id"], "commit")
    assert got == ["n0", "n0", "waits", "waits", "n1", "n1"]
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["n2", "late"]


async def test_a_senders_order_comes_before_what_it_sent_without(exchange: LocalExchange) -> None:
    phone, other, erp = (exchange.caller(name) for name in ("phone", "other", "erp"))
    await phone.send("plain")
    await other.send("between")
    await phone.send("first", order=1, recipient="erp")
    process = await erp.begin()
    assert [file["id"] for file in process["files"]] == ["first", "between", "plain"]


async def test_handing_out_reads_by_index_whatever_waits(exchange: LocalExchange) -> None:
    await exchange.restart(suspect_after=1000)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("first")
    exchange.rows(
        "insert into exchange.message (database_id, kind, sender, id, name, sequence, state,"
        " file_name, size, sha256, digest, folder)"
        " select 'sales', 'message', 'bulk', 'b' || n, 'x', n, 'queued', n || '_x', 1, '', '',"
        " 'Messages' from generate_series(1, 20000) n returning 1"
    )
    with psycopg.connect(exchange.dsn, autocommit=True) as connection:
        connection.execute("analyze exchange.message")
    before = _rows_read(exchange)
    # Often enough for a plan that knows no parameters.
    for _ in range(10):
        process = await erp.begin(max_files=1)
        assert [file["id"] for file in process["files"]] == ["first"]
        await erp.end(process["id"], "abort")
    # What a session has read is told when it ends.
    await exchange.server.stop()
    assert _rows_read(exchange) - before < 1000


def _rows_read(local: LocalExchange) -> int:
    read = local.rows(
        "select sum(idx_tup_read)::int as n from pg_stat_user_indexes where relname = 'message'"
    )
    return int(read[0]["n"])


async def test_one_attempt_for_two_databases_at_once_is_refused(exchange: LocalExchange) -> None:
    await exchange.restart(suspect_after=1000)
    phone, erp = exchange.caller("phone"), exchange.caller("erp", recipients=["r2"])
    for database in ("d1", "d2"):
        await phone.send(f"m-{database}", database)
    for number in range(10):
        wishes = [
            {"database": "d1", "attempt": f"t{number}"},
            {"database": "d2", "attempt": f"t{number}", "recipient": "r2"},
        ]
        answers = await asyncio.gather(
            *(erp.call("POST", "/processes", json=wish) for wish in wishes)
        )
        assert sorted(status for status, _ in answers) == [200, 409], answers
        for status, answer in answers:
            if status == 200:
                await erp.end(answer["process"]["id"], "abort")
            else:
                assert answer["code"] == "MX030"


async def test_one_attempt_for_two_databases_and_one_recipient_is_refused(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(suspect_after=1000)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for database in ("d1", "d2"):
        await phone.send(f"m-{database}", database)
    for number in range(10):
        wishes = [{"database": name, "attempt": f"t{number}"} for name in ("d1", "d2")]
        answers = await asyncio.gather(
            *(erp.call("POST", "/processes", json=wish) for wish in wishes)
        )
        for wish, (status, answer) in zip(wishes, answers, strict=True):
            if status == 200 and answer["status"] == "STARTED":
                assert answer["process"]["database"] == wish["database"]
                await erp.end(answer["process"]["id"], "abort")


async def test_a_page_of_replies_cut_by_its_bytes_goes_on(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    names = [f"r{number}" for number in range(5)]
    replies = [{"name": name, "recipient": "phone", "body": "x" * 100} for name in names]
    await erp.prepare(process["id"], replies)
    await erp.end(process["id"], "commit")
    for limits in ("max_bytes=150", "limit=2", "max_bytes=250&limit=4", "max_bytes=1"):
        got: list[str] = []
        page = f"/messages?{limits}"
        while True:
            _, answer = await phone.call("GET", page)
            got += [item["id"] for item in answer["items"]]
            if answer["cursor"] is None:
                break
            page = f"/messages?{limits}&cursor={answer['cursor']}"
        assert got == names, limits
