"""One search finds an order in all components and shows its path in order of time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import psycopg

from postroad.bus import Bus
from postroad.bus import resources as bus
from postroad.exchange import resources as resources_of_exchange
from postroad.intake import resources as intake
from postroad.operate import Row
from postroad.operate.journey import Search, found, searched
from postroad.testing import wait_until_async
from tests.fixtures.exchange import LocalExchange
from tests.integration.test_traces import headed, line

RESOURCES = searched(bus, resources_of_exchange, intake)


async def search(exchange: LocalExchange, text: str, language: str = "en") -> list[Row]:
    one = Search(text)
    async with await psycopg.AsyncConnection.connect(exchange.dsn) as connection:
        while wanted := one.round():
            for resource in RESOURCES:
                one.add(resource, await found(connection, resource, wanted), language)
    return one.steps


def kinds(steps: list[Row]) -> list[tuple[str, str, str]]:
    return [(one["component"], one["kind"], one["state"]) for one in steps]


async def test_an_order_is_followed_from_its_post_to_the_reply(exchange: LocalExchange) -> None:
    for queue in ("orders", "answers", "others"):
        exchange.rows("select mbus.create_queue(%s, payload => 'jsonb')", queue)
        exchange.rows("select mbus.alter_queue(%s, track => 'order_id', retain => '1 day')", queue)
    exchange.rows("select exchange.add_route('in1', 'in', 'orders', 'sales', null)")
    exchange.rows("select exchange.add_route('out1', 'out', 'answers', null, 'desk')")
    order: dict[str, Any] = {"order_id": 4711}
    headers = f'traceparent=>"{line("a")}"'
    exchange.rows(
        "select mbus.post('orders', %s::jsonb, %s::hstore)", psycopg.types.json.Json(order), headers
    )
    exchange.rows("select mbus.post('others', '{\"order_id\": 4712}'::jsonb)")

    async def has_arrived() -> bool:
        return len(exchange.rows("select from exchange.message")) == 1

    await wait_until_async(has_arrived, what="the order in the mailbox")
    waiting = await search(exchange, "4711")
    assert kinds(waiting) == [
        ("bus", "message", "retained"),
        ("exchange", "message", "queued"),
    ]
    assert [one["next"] for one in waiting] == [
        "consumed; replay it if needed",
        "the next process takes it",
    ]
    erp = exchange.caller("erp")
    process = await erp.begin()
    leased = await search(exchange, "4711", "ru")
    assert kinds(leased)[1:] == [
        ("exchange", "message", "leased"),
        ("exchange", "process", "started"),
    ]
    assert leased[1]["holder"] == process["id"]
    assert leased[2]["next"] == "экземпляр подготовит или откатит"
    reply = {
        "name": "1",
        "recipient": "desk",
        "body": {"ok": 1},
        "reply_to": process["files"][0]["id"],
    }
    body = {"replies": [reply], "results": {}}
    await erp.call("POST", f"/processes/{process['id']}/prepare", json=body, **headed("c"))
    await erp.end(process["id"], "commit")

    async def is_answered() -> bool:
        return len(exchange.rows("select from mbus.history('answers')")) == 1

    await wait_until_async(is_answered, what="the reply on the bus")
    await exchange.until_state(process["id"], "DONE")
    path = await search(exchange, "4711")
    assert kinds(path) == [
        ("bus", "message", "retained"),
        ("exchange", "message", "done"),
        ("exchange", "process", "done"),
        ("exchange", "message", "done"),
        ("bus", "message", "ready"),
    ]
    times = [one["at"] for one in path]
    assert times == sorted(times)
    assert [one["place"] for one in path][::4] == ["orders → default", "answers → default"]
    # Every other name of it leads to the same path.
    for text in (line("a"), "a" * 32, path[0]["id"], process["id"], path[1]["id"]):
        assert kinds(await search(exchange, text)) == kinds(path), text
    assert await search(exchange, "4710") == []


async def test_the_command_prints_the_path(exchange: LocalExchange) -> None:
    async def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from postroad.cli import run; run()", "--database-url"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, exchange.dsn, "find", text, *options],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    nothing = await run("4711")
    assert nothing.stdout == ""
    assert "there are no steps" in nothing.stderr
    assert (await run("4711", "--json")).stdout == "[]\n"
    exchange.rows("select mbus.create_queue('orders', payload => 'jsonb')")
    exchange.rows("select mbus.create_consumer('orders', 'audit')")
    exchange.rows("select mbus.alter_queue('orders', track => 'order_id', retain => '1 day')")
    exchange.rows("select exchange.add_route('in1', 'in', 'orders', 'sales', null)")
    headers = {"traceparent": line("a")}
    with Bus(exchange.dsn) as client:
        iid = client.post("orders", {"order_id": 4711}, headers=headers)
        client.post("orders", {"order_id": 4712})
        (message,) = client.lease("orders", "audit")
        client.nack(message, error="no such customer", park=True)

    async def has_arrived() -> bool:
        return len(exchange.rows("select from exchange.message")) == 2

    await wait_until_async(has_arrived, what="the orders in the mailbox")
    steps = json.loads((await run("4711", "--json")).stdout)
    found = {(one["component"], one["place"], one["state"]): one for one in steps}
    assert set(found) == {
        ("bus", "orders → audit", "dead"),
        ("exchange", "sales", "queued"),
    }
    dead = found["bus", "orders → audit", "dead"]
    assert (dead["id"], dead["attempts"], dead["error"]) == (iid, 1, "no such customer")
    assert dead["next"] == "redrive or delete it"
    table = await run(line("a"))
    for word in ("audit", "no such customer", "redrive or delete it", "sales", "queued"):
        assert word in table.stdout, word
    # Coordination is not used: that its database does not exist is no failure.
    assert table.stderr == ""
    # A text that looks like an iid, and is none.
    assert json.loads((await run("someone@example.com", "--json")).stdout) == []
