"""The trace of a request is on what components post inside SQL because of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from postroad import trace
from postroad.cli.components import SCHEMAS
from postroad.coordination.gateway import Gateway
from postroad.intake import operations
from postroad.intake.engine import open_engine
from postroad.intake.notice import create_queues
from postroad.postgres import connect_async
from postroad.settings.intake import IntakeSettings
from postroad.testing import TestServer, wait_until_async
from postroad.vault import Vault, new_key
from tests.fixtures.exchange import LocalExchange
from tests.fixtures.sshd import SshServer
from tests.integration.coordination.deployment import open_deployment
from tests.integration.intake.partner import Partner, run_once

SPAN = "00f067aa0ba902b7"


def line(name: str) -> str:
    """Make the `traceparent` of a trace whose name is one hexadecimal digit."""
    return f"00-{name * 32}-{SPAN}-01"


def headed(name: str) -> dict[str, Any]:
    return {"headers": {"traceparent": line(name)}}


def trace_of(given: str | None) -> str | None:
    """Return the name of a well-formed line on a span of its own; `new` for a trace of its own."""
    if given is None:
        return None
    version, number, span, flags = given.split("-")
    assert (version, flags, len(number), len(span)) == ("00", "01", 32, 16)
    assert span != SPAN
    return number[0] if len(set(number)) == 1 else "new"


@pytest.fixture
def furnished(server: TestServer) -> Iterator[Connection[Any]]:
    with (
        server.clone(*SCHEMAS) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        yield connection


def test_sql_posts_on_the_trace_of_its_transaction(furnished: Connection[Any]) -> None:
    furnished.execute("select mbus.create_queue('orders', payload => 'text')")

    def post(otherwise: str | None = None) -> None:
        furnished.execute("select mbus.post_orders('x', mbus.trace_headers(%s))", (otherwise,))

    with furnished.transaction():
        furnished.execute("select set_config('postroad.traceparent', %s, true)", (line("a"),))
        post()
        post(line("b"))
        furnished.execute("select mbus.follow_trace('traceparent=>no, other=>1')")
        post()
        furnished.execute("select mbus.follow_trace(null)")
        post()
        post(line("c"))
    # The setting went with its transaction.
    post()
    found = furnished.execute(
        "select headers -> 'traceparent' from mbus.consumen_orders_by_default(10)"
    ).fetchall()
    assert [trace_of(one) for (one,) in found] == ["a", "a", None, None, "c", None]


def events_of(exchange: LocalExchange) -> list[tuple[str, str | None]]:
    rows = exchange.rows(
        "select data ->> 'state' as state, headers -> 'traceparent' as line"
        " from mbus.consumen_exchange_events_by_default(100)"
    )
    return [(row["state"], trace_of(row["line"])) for row in rows]


async def test_events_of_a_process_are_on_the_traces_of_its_requests(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("one")
    path = "/processes"
    _, answer = await erp.call(
        "POST", path, json={"database": "sales", "attempt": "a"}, **headed("a")
    )
    path += f"/{answer['process']['id']}"
    await erp.call("POST", f"{path}/prepare", json={"replies": [], "results": {}}, **headed("b"))
    await erp.call("POST", f"{path}/commit", json={}, **headed("c"))
    await exchange.until_state(answer["process"]["id"], "DONE")
    # DONE is noted with others' by one call; it is the commit that caused it.
    assert events_of(exchange) == [
        ("STARTED", "a"),
        ("READY_TO_COMMIT", "b"),
        ("CLEANUP", "c"),
        ("DONE", "c"),
    ]


async def test_an_answer_leaves_on_the_trace_of_what_it_answers(exchange: LocalExchange) -> None:
    for queue in ("orders", "answers"):
        exchange.rows("select mbus.create_queue(%s, payload => 'jsonb')", queue)
    exchange.rows("select exchange.add_route('in1', 'in', 'orders', 'sales', null)")
    exchange.rows("select exchange.add_route('out1', 'out', 'answers', null, 'desk')")
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.call("POST", "/messages", json=_message("sent"), **headed("a"))
    exchange.rows("select mbus.post('orders', '{}'::jsonb, hstore('traceparent', %s))", line("b"))

    async def has_arrived() -> bool:
        return len(exchange.rows("select from exchange.message")) == 2

    await wait_until_async(has_arrived, what="both messages in the mailbox")
    process = await erp.begin()
    by_sender = {file["sender"]: file["id"] for file in process["files"]}
    replies = [
        {"name": "1", "recipient": "desk", "body": 1, "reply_to": by_sender["phone"]},
        {"name": "2", "recipient": "desk", "body": 2, "reply_to": by_sender["bus.in1"]},
        {"name": "3", "recipient": "desk", "body": 3},
    ]
    body = {"replies": replies, "results": {}}
    await erp.call("POST", f"/processes/{process['id']}/prepare", json=body, **headed("c"))
    await erp.end(process["id"], "commit")
    found: dict[int, str | None] = {}

    async def is_posted() -> bool:
        rows = exchange.rows(
            "select data, headers -> 'traceparent' as line"
            " from mbus.consumen_answers_by_default(10)"
        )
        found.update({row["data"]["body"]: trace_of(row["line"]) for row in rows})
        return len(found) == 3

    await wait_until_async(is_posted, what="all replies on the bus")
    # What answers nothing is on the trace of the request that brought it.
    assert found == {1: "a", 2: "b", 3: "c"}
    await exchange.until_state(process["id"], "DONE")
    # A call without a trace starts one.
    states = dict(events_of(exchange))
    assert states == {"STARTED": "new", "READY_TO_COMMIT": "c", "CLEANUP": "new", "DONE": "new"}


def _message(id_: str) -> dict[str, Any]:
    return {"id": id_, "database": "sales", "body": {}}


@pytest.mark.parametrize("mode", ["replicate", "two-phase"])
async def test_an_event_keeps_its_trace_through_publish_vote_and_decision(
    server: TestServer, mode: str
) -> None:
    queues = {"writer": "co_events", "lists": "co_votes", "coordinator": "co_decide"}
    async with open_deployment(server, quick=timedelta(minutes=1)) as deployment:
        for part, queue in queues.items():
            await deployment.run(part, "select mbus.create_consumer(%s, 'watcher')", queue)
        dsns = deployment.dsns
        async with (
            Gateway(
                dsns["writer"], dsns["coordinator"], dsns["lists"], token="pr_secret"
            ) as gateway,
            _client(gateway) as client,
        ):
            item = {"Name": "one", "CorrelationId": "00000000-0000-0000-0000-000000000001"}
            answer = await client.post(f"/entities/DummyItem?mode={mode}", json=item, **headed("a"))
            event = answer.json()["event_id"]
            assert await deployment.until_finished(event) == "Committed"
        for part, queue in queues.items():
            found = await deployment.run(
                part,
                f"select headers -> 'traceparent', data from mbus.consumen_{queue}_by_watcher(100)",
            )
            assert {trace_of(one) for one, _ in found} == {"a"}, (part, found)
            if part == "writer":
                assert [one["traceparent"] for one in found[0][1]["events"]] == [line("a")]


def _client(gateway: Gateway) -> Any:
    import httpx

    return httpx.AsyncClient(
        base_url=f"{gateway.url}/coordination/v1",
        timeout=30,
        headers={"Authorization": "Bearer pr_secret"},
    )


async def test_a_notice_is_on_the_trace_of_the_look_and_then_of_the_request(
    furnished: Connection[Any], sshd: SshServer, tmp_path: Path
) -> None:
    vault = Vault([new_key()])
    engine = open_engine(furnished.info.dsn, IntakeSettings(), vault, tmp_path, "test worker")
    partner = Partner.at(sshd, furnished, vault)

    def notices() -> list[str | None]:
        return [
            one
            for (one,) in furnished.execute(
                "select headers -> 'traceparent' from mbus.consumen_file_events_by_default(10)"
            )
        ]

    try:
        await create_queues(engine)
        partner.write("one.csv", b"1")
        partner.write("two.csv", b"2")
        await run_once(engine, partner)
        found = notices()
        # Nobody asked for this look, so it began a trace: one for all that it found.
        assert len(found) == 2
        assert len({one.split("-")[1] for one in found if one}) == 1
        assert None not in found
        with trace.following(line("a")):
            async with await connect_async(furnished.info.dsn) as connection:
                await operations.reimport(connection, [partner.file("one.csv")["id"]])
        await run_once(engine, partner)
        assert [trace_of(one) for one in notices()] == ["a"]
    finally:
        await engine.close()
