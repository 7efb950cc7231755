"""What a client may do: send, take, resolve; and how its rights are changed."""

from __future__ import annotations

import pytest

from postroad.exchange import operations
from postroad.exchange.errors import ClientNotFound
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from tests.fixtures.exchange import LocalExchange

MESSAGE = {"id": "m1", "database": "sales", "body": 1}
START = {"database": "sales", "attempt": "x"}


async def test_a_live_process_is_resolved_by_its_owner_only(exchange: LocalExchange) -> None:
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    await phone.send("m1")
    process = (await erp.begin())["id"]
    for outcome in ("ABORTED", "COMMITTED"):
        assert (await other.end(process, "resolve", outcome=outcome))[0] == 403
    assert exchange.state(process) == "STARTED"
    await erp.prepare(process)
    for outcome in ("ABORTED", "COMMITTED"):
        assert (await other.end(process, "resolve", outcome=outcome))[0] == 403
        assert (await other.start(resolved={process: outcome}))["status"] == "BUSY"
    assert exchange.state(process) == "READY_TO_COMMIT"
    assert exchange.alerts() == []
    assert await erp.end(process, "resolve", outcome="COMMITTED") == (200, {"status": "OK"})


async def test_a_process_in_doubt_is_resolved_by_who_takes_from_its_database(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = (await erp.begin())["id"]
    await erp.prepare(process)
    await exchange.restart()
    sender = exchange.caller("sender", may_take=False)
    stranger = exchange.caller("stranger", databases=["stock"])
    for caller in (sender, stranger):
        assert (await caller.end(process, "resolve", outcome="COMMITTED"))[0] == 403
    assert exchange.state(process) == "UNKNOWN"
    other = exchange.caller("other", databases=["sales"], may_send=False)
    assert (await other.end(process, "resolve", outcome="COMMITTED"))[0] == 200
    await exchange.until_state(process, "DONE")


async def test_sending_and_taking_are_separate_rights(exchange: LocalExchange) -> None:
    sender = exchange.caller("sender", databases=["sales"], may_take=False)
    taker = exchange.caller("taker", databases=["sales"], may_send=False)
    assert (await taker.call("POST", "/messages", json=MESSAGE))[0] == 403
    assert (await sender.call("POST", "/messages", json=MESSAGE))[0] == 201
    assert (await sender.call("POST", "/processes", json=START))[0] == 403
    assert (await taker.call("POST", "/processes", json=START))[0] == 200


async def test_access_to_all_databases_is_opt_in(exchange: LocalExchange) -> None:
    nobody = exchange.caller("nobody", databases=())
    assert (await nobody.call("POST", "/messages", json=MESSAGE))[0] == 403
    assert (await nobody.call("POST", "/processes", json=START))[0] == 403
    assert run_blocking(exchange.dsn, operations.add_client, "plain").databases == []
    run_blocking(exchange.dsn, operations.change_client, "nobody", all_databases=True)

    async def may_send() -> bool:
        return (await nobody.call("POST", "/messages", json=MESSAGE))[0] == 201

    await wait_until_async(may_send, what="the right to send")


async def test_rights_are_changed_one_by_one(exchange: LocalExchange) -> None:
    exchange.caller("erp", databases=["sales"], recipients=["x"])
    run_blocking(exchange.dsn, operations.change_client, "erp", may_send=False)
    run_blocking(exchange.dsn, operations.change_client, "erp", is_admin=True)
    run_blocking(
        exchange.dsn, operations.change_client, "erp", databases=["stock"], recipients=["y", "z"]
    )
    with pytest.raises(ClientNotFound):
        run_blocking(exchange.dsn, operations.change_client, "nobody", may_take=True)
    (row,) = exchange.rows(
        "select databases, recipients, is_admin, may_send, may_take from exchange.client"
    )
    assert tuple(row.values()) == (["stock"], ["y", "z"], True, False, True)
