"""In doubt: how it begins, who settles it, what a late answer does; time-outs and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from postroad.exchange import operations, status
from postroad.exchange.errors import NotRestored
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from tests.fixtures.exchange import Caller, LocalExchange

REPLY = {"name": "r1", "recipient": "phone", "body": 1}
MESSAGE, ANSWER = "1_m1_from_phone_to_any.json", "1_r1_from_erp_to_phone.json"


async def _in_doubt(local: LocalExchange, **settings: Any) -> tuple[Caller, Caller, str]:
    """A process that was ready to commit when the server was restarted."""
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [REPLY])
    await local.restart(**settings)
    return phone, erp, process["id"]


async def test_a_restart_puts_what_was_ready_in_doubt(exchange: LocalExchange) -> None:
    _, erp, process = await _in_doubt(exchange)
    assert exchange.state(process) == "UNKNOWN"
    assert exchange.files() == {"Unknown": sorted([MESSAGE, ANSWER])}
    assert exchange.alerts() == [f"exchange/in_doubt/{process}"]
    assert await erp.start() == {"status": "RESOLVE", "processes": [process]}


async def test_the_answer_rides_on_api_1(exchange: LocalExchange) -> None:
    phone, _, process = await _in_doubt(exchange)
    other = exchange.caller("other")
    waiting = await other.start(resolved={process: "INFLIGHT"})
    assert waiting == {"status": "RESOLVE", "processes": [process]}
    settled = await other.start(resolved={process: "COMMITTED"})
    assert settled["status"] == "IDLE"
    await exchange.until_state(process, "DONE")
    assert exchange.files() == {"Log": [MESSAGE], "Messages": [ANSWER]}
    assert len(await phone.replies()) == 1
    assert exchange.alerts() == []


async def test_aborted_hands_the_files_out_again_in_the_same_call(exchange: LocalExchange) -> None:
    phone, _, process = await _in_doubt(exchange)
    again = await exchange.caller("other").start(resolved={process: "ABORTED"})
    assert [file["id"] for file in again["process"]["files"]] == ["m1"]
    assert exchange.files() == {"Messages": [MESSAGE]}
    assert await phone.replies() == []


@pytest.mark.parametrize(
    ("verb", "files"),
    [
        ("commit", {"Log": [MESSAGE], "Messages": [ANSWER]}),
        ("abort", {"Messages": [MESSAGE]}),
        ("fail", {"Messages": [MESSAGE]}),
    ],
)
async def test_a_late_answer_of_the_owner_settles(
    exchange: LocalExchange, verb: str, files: dict[str, list[str]]
) -> None:
    _, erp, process = await _in_doubt(exchange)
    assert await erp.end(process, verb) == (200, {"status": "OK"})
    assert exchange.files() == files
    assert exchange.alerts() == []


async def test_a_repeated_prepare_in_doubt_is_still_ok(exchange: LocalExchange) -> None:
    _, erp, process = await _in_doubt(exchange)
    assert await erp.prepare(process, [REPLY]) == (200, {"status": "OK"})
    assert exchange.state(process) == "UNKNOWN"


async def test_at_level_manual_the_work_goes_on_and_a_person_settles(
    exchange: LocalExchange,
) -> None:
    exchange.rows("select exchange.add_database('sales', 'manual')")
    phone, erp, process = await _in_doubt(exchange)
    assert (await erp.start())["status"] == "IDLE"
    await phone.send("m2")
    assert [file["id"] for file in (await erp.begin())["files"]] == ["m2"]
    admin = exchange.caller("admin", is_admin=True)
    assert (await admin.end(process, "release"))[0] == 422
    assert (await admin.end(process, "release", outcome="ABORTED"))[0] == 200
    assert MESSAGE in exchange.files()["Messages"]


async def test_ready_to_commit_outlives_its_time(exchange: LocalExchange) -> None:
    await exchange.restart(ready_timeout="300ms")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [REPLY])
    await exchange.until_state(process["id"], "UNKNOWN")
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    assert exchange.files() == {"Log": [MESSAGE], "Messages": [ANSWER]}


async def test_started_times_out_and_its_owner_is_cancelled(exchange: LocalExchange) -> None:
    await exchange.restart(started_timeout="300ms")
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    await phone.send("m1")
    process = await erp.begin()
    await exchange.until_state(process["id"], "CANCELLED")
    second = await other.begin()
    assert second["files"][0]["id"] == "m1"
    assert await erp.prepare(process["id"], [REPLY]) == (200, {"status": "CANCELLED"})
    assert (await erp.end(process["id"], "commit"))[0] == 409
    assert await erp.end(process["id"], "fail", error="x") == (200, {"status": "OK"})
    assert exchange.state(second["id"]) in ("STARTED", "CANCELLED")


async def test_renewing_keeps_a_process(exchange: LocalExchange) -> None:
    await exchange.restart(started_timeout="1s")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    for _ in range(6):
        for _ in range(3):
            await exchange.server.signals.wait("swept")
        status, answer = await erp.end(process["id"], "renew")
        assert (status, answer["status"]) == (200, "OK")
    assert exchange.state(process["id"]) == "STARTED"
    await exchange.until_state(process["id"], "CANCELLED")
    assert (await erp.end(process["id"], "renew"))[1]["status"] == "CANCELLED"


async def test_time_passes_only_while_the_server_serves(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await exchange.restart()
    assert exchange.state(process["id"]) == "STARTED"
    again = await erp.start(attempt="a1")
    assert again["process"]["files"] == process["files"]
    await erp.prepare(process["id"])
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})


async def test_commit_and_abort_at_once_have_one_outcome(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number in range(10):
        await phone.send(f"m{number}")
        process = await erp.begin()
        await erp.prepare(process["id"])
        answers = await asyncio.gather(
            *(erp.end(process["id"], verb) for verb in ("commit", "abort", "fail", "commit"))
        )
        codes = [status for status, _ in answers]
        assert codes in ([200, 409, 409, 200], [409, 200, 200, 409])


async def test_a_restored_database_is_noticed_and_replayed(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number in range(3):
        await phone.send(f"m{number}")
        process = await erp.begin(marker_seq=number)
        assert process["marker_seq"] == number + 1
        await erp.prepare(process["id"])
        await erp.end(process["id"], "commit")
    assert await erp.start(marker_seq=1) == {"status": "RESTORED", "last": 3, "got": 1}
    await _has_stood(exchange)
    assert exchange.rows("select exchange.replay(null, 'sales', null, false) as n") == [{"n": 2}]
    process = await erp.begin(marker_seq=1)
    assert [file["id"] for file in process["files"]] == ["m1", "m2"]
    assert [file["body"]["id"] for file in process["files"]] == ["m1", "m2"]
    assert exchange.alerts() == []


async def _has_stood(local: LocalExchange) -> None:
    """What was reported has not been corrected for so long that it counts."""
    local.rows(
        "update exchange.database set restored_at = restored_at - interval '1 h' returning 1"
    )

    async def is_told() -> bool:
        return local.alerts() == ["exchange/restored/sales"]

    await wait_until_async(is_told, what="the administrator is told of the restore")


async def test_a_marker_read_before_anothers_commit_is_no_restore(exchange: LocalExchange) -> None:
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    await phone.send("m")
    process = await erp.begin(marker_seq=0)
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    # The second instance had read its marker a moment too early: it is to read it again.
    assert (await other.start(marker_seq=0))["status"] == "RESTORED"
    for _ in range(3):
        await exchange.server.signals.wait("swept")
    assert exchange.alerts() == []
    with pytest.raises(NotRestored):
        run_blocking(exchange.dsn, operations.replay, "sales")
    assert (await other.start(marker_seq=1))["status"] == "IDLE"
    assert exchange.rows("select from alerts.report where key like '%restored%'") == []
    assert exchange.rows("select restored_at from exchange.database") == [{"restored_at": None}]


async def test_a_newer_marker_ends_what_was_told_of_a_restore(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m")
    process = await erp.begin(marker_seq=0)
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    await erp.start(marker_seq=0)
    await _has_stood(exchange)
    assert (await erp.start(marker_seq=1))["status"] == "IDLE"
    assert exchange.alerts() == []


async def test_what_is_settled_by_the_call_counts_for_its_marker(exchange: LocalExchange) -> None:
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    await phone.send("m1")
    first = await erp.begin(marker_seq=0)
    await erp.prepare(first["id"])
    await phone.send("m2")
    await exchange.restart()
    second = await other.begin(marker_seq=0, resolved={first["id"]: "COMMITTED"})
    assert (first["marker_seq"], second["marker_seq"]) == (1, 2)
    await other.prepare(second["id"])
    await other.end(second["id"], "commit")
    assert await other.start(marker_seq=1) == {"status": "RESTORED", "last": 2, "got": 1}
    with psycopg.connect(exchange.dsn, row_factory=dict_row) as connection:
        lost = connection.execute("select * from exchange.lost_messages('sales', 1)").fetchall()
    assert [one["id"] for one in lost] == ["m2"]


async def test_a_clock_that_was_put_back_delays_no_replay(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m")
    process = await erp.begin(marker_seq=0)
    await erp.prepare(process["id"])
    await erp.end(process["id"], "commit")
    await erp.start(marker_seq=0)
    move = "update exchange.database set restored_at = exchange.now() + %s::interval returning 1"
    with psycopg.connect(exchange.dsn) as connection:
        connection.execute(move, ("3 s",))
        connection.commit()
        assert run_blocking(exchange.dsn, operations.restored_in, "sales") == 5
        connection.execute(move, ("1 day",))
        connection.commit()
        assert run_blocking(exchange.dsn, operations.replay, "sales") == 1


async def test_an_outcome_locks_its_database_before_its_process(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m")
    process = await erp.begin(marker_seq=0)
    await erp.prepare(process["id"])
    with psycopg.connect(exchange.dsn) as connection:
        # As API_1 does, before it settles.
        connection.execute("select from exchange.database for update")
        ending = asyncio.create_task(erp.end(process["id"], "commit"))

        async def waits() -> bool:
            return bool(exchange.rows("select from pg_locks where not granted"))

        await wait_until_async(waits, what="the outcome waits for the database's row")
        connection.execute("select from exchange.process for update nowait")
    assert await ending == (200, {"status": "OK"})


async def test_replies_are_no_traffic_that_was_received(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m")
    process = await erp.begin()
    replies = [{"name": name, "recipient": "phone", "body": 1} for name in ("r1", "r2")]
    await erp.prepare(process["id"], replies)
    assert [one["received"] for one in run_blocking(exchange.dsn, status.traffic)] == [1]
