"""Poison, order after it, corrupt files, check, retention, routes and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from postroad.cli.main import cli
from postroad.cli.output import EXIT_CODES
from postroad.errors import PostroadError
from postroad.exchange import operations
from postroad.exchange.check import check
from postroad.exchange.errors import RootForeign
from postroad.exchange.files import Storage
from postroad.exchange.routes import Routes
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import wait_until_async
from tests.fixtures.exchange import Caller, LocalExchange


async def _fail(erp: Caller) -> list[str]:
    process = await erp.begin()
    await erp.end(process["id"], "fail", error="cannot read it")
    return [file["id"] for file in process["files"]]


async def _commit(erp: Caller) -> list[str]:
    process = await erp.begin()
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    return [file["id"] for file in process["files"]]


async def test_what_fails_too_often_is_offered_alone_and_then_parked(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(suspect_after=2)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for id_ in ("bad", "good"):
        await phone.send(id_)
    assert [await _fail(erp) for _ in range(3)] == [["bad", "good"], ["bad", "good"], ["bad"]]
    assert exchange.files()["Error"] == ["1_bad_from_phone_to_any.json"]
    rows = exchange.rows("select state, error from exchange.message where id = 'bad'")
    assert rows == [{"state": "parked", "error": "cannot read it"}]
    assert await _commit(erp) == ["good"]
    assert [key.rsplit("/", 1)[0] for key in exchange.alerts()] == ["exchange/parked"]


async def test_what_its_owner_dies_of_in_commit_is_parked_in_the_end(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(suspect_after=1)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for id_ in ("bad", "good"):
        await phone.send(id_)
    resolved: dict[str, str] = {}
    offered = []
    for _ in range(4):
        answer = await erp.start(resolved=resolved)
        offered.append([file["id"] for file in answer["process"]["files"]])
        await erp.prepare(answer["process"]["id"])
        await exchange.restart()
        resolved = {answer["process"]["id"]: "ABORTED"}
    assert offered == [["bad", "good"]] * 3 + [["bad"]]
    answer = await erp.start(resolved=resolved)
    assert [file["id"] for file in answer["process"]["files"]] == ["good"]
    assert exchange.files()["Error"] == ["1_bad_from_phone_to_any.json"]


async def test_what_is_refused_again_and_again_is_parked_in_the_end(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(suspect_after=1)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("odd")
    refusal = {"files": [], "delay": 0, "reason": "not for us"}
    for _ in range(4):
        path = f"/processes/{(await erp.begin())['id']}"
        assert await erp.call("PUT", f"{path}/files", json=refusal) == (200, {"status": "OK"})
        assert await erp.call("PUT", f"{path}/files", json=refusal) == (200, {"status": "OK"})
        await erp.call("POST", f"{path}/abort", json={})
    assert (await erp.start())["status"] == "IDLE"
    rows = exchange.rows("select state, error from exchange.message")
    assert rows == [{"state": "parked", "error": "not for us"}]
    assert exchange.files() == {"Error": ["1_odd_from_phone_to_any.json"]}
    assert [key.rsplit("/", 1)[0] for key in exchange.alerts()] == ["exchange/parked"]


async def test_an_alert_of_before_a_restart_is_cleared_after_it(exchange: LocalExchange) -> None:
    exchange.rows("select alerts.raise('exchange/disk', 'exchange', 'error', 'nearly full')")
    await exchange.restart()

    async def is_clear() -> bool:
        return exchange.alerts() == []

    await wait_until_async(is_clear, what="the all-clear")


async def test_messages_that_no_client_can_fetch_raise_an_alert_until_one_can(
    exchange: LocalExchange,
) -> None:
    phone = exchange.caller("phone")
    await phone.send("m1", recipient="erp-typo")
    await phone.send("m2", database="slaes")
    await phone.send("m3", recipient="erp")
    exchange.caller("erp")
    exchange.rows(
        "update exchange.message set created_at = created_at - interval '10 minutes' returning id"
    )
    rows = exchange.rows("select database, recipient from exchange.unserved('5 minutes')")
    assert rows == [
        {"database": "sales", "recipient": "erp-typo"},
        {"database": "slaes", "recipient": None},
    ]

    async def is_raised() -> bool:
        return exchange.alerts() == ["exchange/unserved"]

    await wait_until_async(is_raised, what="the alert")
    other = exchange.caller("other", recipients=["erp-typo"])
    await other.begin(database="slaes")

    async def is_clear() -> bool:
        return exchange.alerts() == []

    await wait_until_async(is_clear, what="the all-clear")


async def test_by_policy_what_follows_a_parked_message_waits(exchange: LocalExchange) -> None:
    exchange.rows("select exchange.add_database('sales', null, 'wait')")
    await exchange.restart(suspect_after=1)
    phone, other, erp = (exchange.caller(name) for name in ("phone", "other", "erp"))
    await phone.send("bad")
    for _ in range(2):
        await _fail(erp)
    await phone.send("next")
    await other.send("else")
    assert await _commit(erp) == ["else"]
    assert (await erp.start())["status"] == "IDLE"
    admin = exchange.caller("admin", is_admin=True)
    await admin.call("POST", "/messages/bad/requeue")
    assert await _commit(erp) == ["bad", "next"]


async def test_edited_torn_and_missing_files_are_found_when_handed_out(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for id_ in ("edited", "torn", "missing", "good"):
        await phone.send(id_)
    folder = exchange.root / "sales/Messages"
    edited = folder / "1_edited_from_phone_to_any.json"
    edited.write_bytes(edited.read_bytes().replace(b"edited", b"EDITED"))
    torn = folder / "2_torn_from_phone_to_any.json"
    os.truncate(torn, 5)
    (folder / "3_missing_from_phone_to_any.json").unlink()
    assert await _commit(erp) == ["good"]
    assert exchange.files() == {
        "Error": ["1_edited_from_phone_to_any.json", "2_torn_from_phone_to_any.json"],
        "Log": ["4_good_from_phone_to_any.json"],
    }
    assert len(exchange.alerts()) == 3
    good = {"id": "torn"}
    (exchange.root / "sales/Error" / torn.name).write_text(json.dumps(good, separators=(",", ":")))
    admin = exchange.caller("admin", is_admin=True)
    assert (await admin.call("POST", "/messages/torn/requeue"))[0] == 200
    assert await _commit(erp) == ["torn"]


async def test_check_finds_every_difference_and_repairs_it(exchange: LocalExchange) -> None:
    phone = exchange.caller("phone")
    for id_ in ("moved", "gone", "changed", "fine"):
        await phone.send(id_)
    folder = exchange.root / "sales"
    (folder / "Messages/1_moved_from_phone_to_any.json").rename(
        folder / "Log/1_moved_from_phone_to_any.json"
    )
    (folder / "Messages/2_gone_from_phone_to_any.json").unlink()
    (folder / "Messages/3_changed_from_phone_to_any.json").write_text("[]")
    (folder / "Prepared/stray.json").write_text("{}")
    (folder / "Prepared/.new-old").write_text("{}")
    storage = Storage(exchange.root)
    with psycopg.connect(exchange.dsn) as connection:
        found = sorted(finding.kind for finding in check(connection, storage))
        assert found == ["changed", "missing", "moved", "temporary", "unlisted"]
        assert all(one.is_fixed for one in check(connection, storage, is_fixing=True))
        assert check(connection, storage) == []
    assert exchange.files() == {
        "Error": ["3_changed_from_phone_to_any.json", "unlisted-stray.json"],
        "Messages": ["1_moved_from_phone_to_any.json", "4_fine_from_phone_to_any.json"],
    }
    assert await _commit(exchange.caller("erp")) == ["moved", "fine"]


async def test_check_refuses_a_folder_that_is_not_the_journals_root(
    exchange: LocalExchange, tmp_path: Path
) -> None:
    phone = exchange.caller("phone")
    await phone.send("m1")
    empty, copied = tmp_path / "empty", tmp_path / "copy"
    empty.mkdir()
    copied.mkdir()
    shutil.copy(exchange.root / ".root.json", copied)
    for wrong in (empty, copied):
        with (
            psycopg.connect(exchange.dsn) as connection,
            pytest.raises(RootForeign, match=str(wrong)),
        ):
            check(connection, Storage(wrong), is_fixing=True)
        assert not (wrong / "sales").exists()
    assert exchange.rows("select state from exchange.message") == [{"state": "queued"}]
    assert exchange.alerts() == []


async def test_what_check_parked_for_want_of_its_file_is_requeued_in_bulk(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("done")
    assert await _commit(erp) == ["done"]
    for id_ in ("m1", "m2", "gone"):
        await phone.send(id_)
    sales = exchange.root / "sales"
    aside = sales.rename(exchange.root / ".aside")
    with psycopg.connect(exchange.dsn) as connection:
        found = check(connection, Storage(exchange.root), is_fixing=True)
        assert [one.kind for one in found] == ["missing"] * 4
    shutil.rmtree(sales)
    aside.rename(sales)
    (sales / "Messages/4_gone_from_phone_to_any.json").unlink()
    assert run_blocking(exchange.dsn, operations.requeue, is_by_file=True)["count"] == 4

    async def has_followed() -> bool:
        return not exchange.rows("select from exchange.move")

    await wait_until_async(has_followed, what="every file is in place")
    assert await _commit(erp) == ["m1", "m2"]
    states = exchange.rows("select id, state, folder from exchange.message order by number")
    assert [tuple(row.values()) for row in states] == [
        ("done", "done", "Log"),
        ("m1", "done", "Log"),
        ("m2", "done", "Log"),
        ("gone", "parked", None),
    ]
    (number,) = exchange.rows("select number from exchange.message where id = 'gone'")
    assert exchange.alerts() == [f"exchange/corrupt/{number['number']}"]


async def test_retention_forgets_log_and_never_what_is_unread(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("old")
    process = await erp.begin()
    await erp.prepare(process["id"], [{"name": "r", "recipient": "phone", "body": 1}])
    await erp.end(process["id"], "commit")
    await exchange.until_state(process["id"], "DONE")
    await phone.send("unread")
    exchange.rows("update exchange.message set created_at = now() - interval '1 year' returning 1")
    exchange.rows(
        "update exchange.message set finished_at = now() - interval '1 year'"
        " where state = 'done' returning 1"
    )
    exchange.rows("update exchange.process set ended_at = now() - interval '1 year' returning 1")
    await exchange.restart()
    assert exchange.files() == {
        "Messages": ["1_r_from_erp_to_phone.json", "2_unread_from_phone_to_any.json"]
    }
    assert len(await phone.replies()) == 1
    await phone.call("DELETE", "/messages/r")
    exchange.rows("update exchange.message set finished_at = now() - interval '1 year' returning 1")
    await exchange.restart(retention_interval="100ms")

    async def is_forgotten() -> bool:
        return not exchange.rows("select from exchange.process")

    await wait_until_async(is_forgotten, what="the process forgotten by the timer")


async def test_routes_carry_between_the_bus_and_mailboxes_once(exchange: LocalExchange) -> None:
    exchange.rows("select mbus.create_queue('orders', payload => 'jsonb')")
    exchange.rows("select mbus.create_queue('answers', payload => 'jsonb')")
    exchange.rows("select exchange.add_route('in1', 'in', 'orders', 'sales', null)")
    exchange.rows("select exchange.add_route('out1', 'out', 'answers', null, 'desk')")
    for number in range(5):
        exchange.rows("select mbus.post('orders', %s::jsonb)", json.dumps({"n": number}))
    erp = exchange.caller("erp")

    async def has_arrived() -> bool:
        return len(exchange.rows("select from exchange.message")) == 5

    await wait_until_async(has_arrived, what="all messages in the mailbox")
    process = await erp.begin()
    assert [file["body"]["n"] for file in process["files"]] == [0, 1, 2, 3, 4]
    replies = [{"name": f"r{n}", "recipient": "desk", "body": {"n": n}} for n in range(5)]
    await erp.prepare(process["id"], replies)
    await erp.end(process["id"], "commit")
    got: list[Any] = []

    async def is_posted() -> bool:
        rows = exchange.rows("select (mbus.consume_answers_by_default()).data")
        got.extend(row["data"]["body"]["n"] for row in rows if row["data"])
        return len(got) == 5

    await wait_until_async(is_posted, what="all replies on the bus")
    assert got == [0, 1, 2, 3, 4]

    async def is_filed() -> bool:
        return len(exchange.files()["Log"]) == 10

    await wait_until_async(is_filed, what="messages and replies in Log")


async def test_a_route_keeps_messages_whose_iid_was_used_before(exchange: LocalExchange) -> None:
    def post(number: int) -> str:
        row = exchange.rows("select mbus.post('orders', %s::jsonb) as iid", json.dumps(number))
        return str(row[0]["iid"])

    async def has_arrived(count: int) -> None:
        async def is_so() -> bool:
            return len(exchange.rows("select from exchange.message")) == count

        await wait_until_async(is_so, what=f"{count} messages in the mailbox")

    exchange.rows("select mbus.create_queue('orders', payload => 'jsonb')")
    exchange.rows("select exchange.add_route('in1', 'in', 'orders', 'sales', null)")
    queue, number, node = re.split("[.@]", post(1))
    await has_arrived(1)
    # Somebody has used the ids of the next two: for other content, and for the very same.
    double = exchange.caller("bus.in1")
    for next_, body in ((1, "other"), (2, 3)):
        await double.send(f"{queue}.{int(number) + next_}.{node}", body=body)
    assert [int(re.split("[.@]", post(n))[1]) for n in (2, 3)] == [int(number) + 1, int(number) + 2]
    await has_arrived(5)
    process = await exchange.caller("erp").begin()
    assert [file["body"] for file in process["files"]] == [1, "other", 3, 2, 3]


async def test_a_route_keeps_as_text_what_is_no_json(exchange: LocalExchange) -> None:
    texts = ["NaN", '"\\ud800"', "1e999", "no json", '{"n": 1}']
    exchange.rows("select mbus.create_queue('notes', payload => 'text')")
    exchange.rows("select exchange.add_route('in2', 'in', 'notes', 'sales', null)")
    for text in texts:
        exchange.rows("select mbus.post('notes', %s::text)", text)

    async def has_arrived() -> bool:
        return len(exchange.rows("select from exchange.message")) == len(texts)

    await wait_until_async(has_arrived, what="every message in the mailbox")
    process = await exchange.caller("erp").begin()
    assert [file["body"] for file in process["files"]] == [*texts[:-1], {"n": 1}]


async def test_the_command_line_does_what_operators_need(exchange: LocalExchange) -> None:
    await exchange.restart(suspect_after=1)
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("bad")
    for _ in range(2):
        await _fail(erp)

    async def command(*arguments: str, code: int = 0) -> Any:
        given = ["--database-url", exchange.dsn, "exchange", *arguments, "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, given)
        failure = result.exception
        is_own = isinstance(failure, PostroadError)
        found = EXIT_CODES[failure.kind][0] if is_own else result.exit_code
        assert found == code, (arguments, result.output, failure)
        return json.loads(result.stdout) if result.stdout else None

    assert (await command("clients", "add", "tablet", "--admin"))["token"]
    await command("clients", "change", "tablet", code=2)
    assert (await command("clients", "change", "tablet", "--all-databases", "--no-take"))["id"]
    (tablet,) = [row for row in await command("clients") if row["id"] == "tablet"]
    assert (tablet["databases"], tablet["may_send"], tablet["may_take"]) == (None, True, False)
    assert [row["id"] for row in await command("databases")] == ["sales"]
    assert (await command("databases", "add", "stock", "--resolution", "manual"))["id"] == "stock"
    assert len(await command("processes")) == 2
    assert (await command("messages", "--state", "parked"))[0]["id"] == "bad"
    assert (await command("requeue", "bad"))["status"] == "OK"
    assert exchange.files() == {"Messages": ["1_bad_from_phone_to_any.json"]}
    assert await command("check") == []
    (exchange.root / "sales/Messages/1_bad_from_phone_to_any.json").write_text("x")
    assert [one["kind"] for one in await command("check", code=1)] == ["changed"]
    assert [one["is_fixed"] for one in await command("check", "--fix", code=1)] == [True]
    assert await command("check", "--root", str(exchange.root)) == []
    assert (await command("requeue", "--by-file", "--dry-run"))["count"] == 1
    process = await _in_doubt(exchange, phone, erp)
    assert (await command("resolve", process, "ABORTED"))["status"] == "OK"
    await command("resolve", process, "COMMITTED", code=4)
    await command("replay", "sales", code=4)


async def test_the_command_line_keeps_its_lists_whole_and_its_filters_narrow(
    exchange: LocalExchange,
) -> None:
    async def command(*arguments: str, code: int = 0) -> Any:
        given = ["--database-url", exchange.dsn, "exchange", *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, cli, given)
        assert result.exit_code == code, (arguments, result.output, result.exception)
        return json.loads(result.stdout) if "--json" in arguments and not code else result.output

    await exchange.caller("phone").send("m1")
    exchange.rows("update exchange.message set state = 'parked' returning number")
    exchange.rows(
        "select exchange.add_client('c' || i, md5(i::text), false, '{}', '{}', true, true)"
        " from generate_series(1, 60) i"
    )
    await command("clients", "change", "c1", "--all-databases")
    assert len(await command("clients", "--json")) > 60
    rows = {line.split()[0]: line for line in (await command("clients")).splitlines()}
    assert " all " in rows["c1"]
    assert " all " not in rows["c2"]
    page = await command("clients", "list", "--limit", "1")
    assert "there are more: --after" in page
    epoch = exchange.server.journal and exchange.server.journal.epoch
    (server,) = await command("servers", "--json")
    assert (server["epoch"], server["is_sweeper"]) == (epoch, True)
    # Only for a recipient that has none: nothing may change.
    none = await command("requeue", "--all", "--recipient", "nobody", "--json")
    assert (none["count"], none["status"]) == (0, "OK")
    assert await command("messages", "--state", "queued", "--json") == []
    await command("requeue", "m1", "--state", "parked", code=2)
    assert (await command("requeue", "--all", "--sender", "phone", "--json"))["count"] == 1
    assert "there is no route r1" in await command("routes", "remove", "r1")
    assert (await command("clients", "change", "c2", "--no-send", "--json"))["status"] == "OK"


async def _in_doubt(local: LocalExchange, phone: Caller, erp: Caller) -> str:
    await phone.send("doubtful")
    process = await erp.begin()
    await erp.prepare(process["id"])
    await local.restart()
    return str(process["id"])


async def test_a_server_whose_routes_died_ends_with_their_error(
    exchange: LocalExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = asyncio.Event()

    async def die(self: Routes) -> None:
        self.announce_ready()
        await is_broken.wait()
        raise ValueError("broken")

    monkeypatch.setattr(Routes, "run", die)
    await exchange.server.stop()
    server = ExchangeServer(exchange.dsn, exchange.root, ExchangeSettings(), port=0)
    await server.start()
    await server.ready()
    is_broken.set()
    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match="broken"):
            await server.join()
