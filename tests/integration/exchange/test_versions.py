"""What depends on the version of PostgreSQL: every function of the journal is called on each."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import psycopg
import pytest

from postroad.exchange import operations
from postroad.exchange.check import check
from postroad.exchange.files import Storage
from postroad.postgres import run_blocking
from tests.fixtures.exchange import LocalExchange
from tests.fixtures.postgres import variants


@pytest.fixture(params=variants())
def server_bin_folder(request: pytest.FixtureRequest) -> Path | None:
    return request.param


async def test_a_day_of_the_exchange(exchange: LocalExchange) -> None:
    phone, erp, other = (exchange.caller(name) for name in ("phone", "erp", "other"))
    admin = exchange.caller("admin", is_admin=True)
    for number in (2, 1):
        await phone.send(f"m{number}", order=number)
    await phone.send("scan", content_base64=base64.b64encode(b"x").decode(), media_type="a/b")
    await phone.send("m1", order=1)
    process = await erp.begin(marker_seq=0, senders=["phone"])
    assert [file["id"] for file in process["files"]] == ["m1", "m2", "scan"]
    path, names = f"/processes/{process['id']}", [file["name"] for file in process["files"]]
    await erp.call("PUT", f"{path}/files", json={"files": names[:2], "delay": 0})
    await erp.call("PUT", f"{path}/replies/large", content=b"y" * 1000)
    uploaded = {
        "name": "large",
        "recipient": "phone",
        "sha256": hashlib.sha256(b"y" * 1000).hexdigest(),
    }
    small = {"name": "small", "recipient": "phone", "body": 1}
    results = {names[1]: {"status": "INCORRECT", "error": "no"}}
    assert (await erp.prepare(process["id"], [uploaded, small], results))[1] == {"status": "OK"}
    await erp.end(process["id"], "renew")
    await exchange.restart()
    assert (await other.start())["processes"] == [process["id"]]
    answer = await other.start(resolved={process["id"]: "COMMITTED"}, marker_seq=1)
    assert [file["id"] for file in answer["process"]["files"]] == ["scan"]
    await other.end(answer["process"]["id"], "fail", error="x")
    replies = await phone.replies()
    assert sorted(reply["id"] for reply in replies) == ["large", "small"]
    for reply in replies:
        assert (await phone.call("DELETE", f"/messages/{reply['id']}"))[0] == 200
    assert (await admin.call("POST", "/messages/m2/requeue"))[0] == 200
    for page in ("processes", "databases", "clients", path.lstrip("/")):
        assert (await admin.call("GET", f"/{page}"))[0] == 200
    assert (await erp.start(marker_seq=0))["status"] == "RESTORED"
    with psycopg.connect(exchange.dsn) as connection:
        assert run_blocking(exchange.dsn, operations.replay, "sales", from_seq=0) == 1
        connection.commit()
    process = await erp.begin(marker_seq=0)
    assert [file["id"] for file in process["files"]] == ["m1", "m2", "scan"]
    await erp.prepare(process["id"])
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    await exchange.until_state(process["id"], "DONE")
    with psycopg.connect(exchange.dsn) as connection:
        assert check(connection, Storage(exchange.root)) == []
    exchange.rows("update exchange.message set finished_at = now() - interval '1 year' returning 1")
    exchange.rows("update exchange.process set ended_at = now() - interval '1 year' returning 1")
    await exchange.restart()
    assert exchange.files() == {}
    assert exchange.rows("select from exchange.process") == []
