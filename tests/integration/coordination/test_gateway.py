"""The Gateway: commands, queries, events, read-your-writes, changes as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest

from postroad.cli.components import SCHEMAS
from postroad.coordination import Writer
from postroad.coordination.gateway import Gateway
from postroad.coordination.sample import install_sample
from postroad.postgres import connect, install
from postroad.testing import TestServer, wait_until_async
from postroad.web.cursors import encode_cursor
from tests.integration.coordination.deployment import Deployment, open_deployment

BEARER = {"Authorization": "Bearer pr_secret"}
ITEM = {"CorrelationId": "00000000-0000-0000-0000-000000000001", "Name": "one"}


@asynccontextmanager
async def _served(
    server: TestServer, headers: dict[str, str] = BEARER
) -> AsyncIterator[tuple[Deployment, httpx.AsyncClient]]:
    async with open_deployment(server) as deployment:
        dsns = deployment.dsns
        gateway = Gateway(
            dsns["writer"],
            dsns["coordinator"],
            dsns["lists"],
            after_timeout=timedelta(seconds=10),
            token="pr_secret",
        )
        async with (
            gateway,
            httpx.AsyncClient(
                base_url=f"{gateway.url}/coordination/v1", timeout=30, headers=headers
            ) as client,
        ):
            yield deployment, client


async def test_a_body_without_a_content_type_is_read_as_json(newest_server: TestServer) -> None:
    async with _served(newest_server) as (_, client):
        created = await client.post("/entities/DummyItem", content=json.dumps(ITEM))
        assert created.status_code == 201
        address = f"/entities/DummyItem/{created.json()['row']['Id']}"
        changed = await client.patch(address, content=b'{"Name": "two"}')
        assert (changed.status_code, changed.json()["row"]["Name"]) == (200, "two")


async def test_a_row_lives_its_life_through_the_gateway(newest_server: TestServer) -> None:
    async with _served(newest_server) as (deployment, client):
        created = await client.post("/entities/DummyItem", json=ITEM)
        assert created.status_code == 201
        event, key = created.json()["event_id"], created.json()["row"]["Id"]
        address = f"/entities/DummyItem/{key}"
        # Read your write: from the Reader, and waited for.
        read = await client.get(address, params={"after": event})
        assert read.json() == {"Id": key, **ITEM}
        assert read.headers["etag"] == created.headers["etag"]
        # The version that was read still is the one that is changed.
        changed = await client.patch(
            address, json={"Name": "two"}, headers={"If-Match": read.headers["etag"]}
        )
        assert changed.json()["row"]["Name"] == "two"
        conflict = await client.patch(
            address, json={"Name": "three"}, headers={"If-Match": read.headers["etag"]}
        )
        assert (conflict.status_code, conflict.json()["code"]) == (
            412,
            "coordination_version_conflict",
        )
        gone = await client.delete(address, params={"mode": "two-phase"})
        event = gone.json()["event_id"]
        missing = await client.get(address, params={"after": event})
        assert (missing.status_code, missing.json()["code"]) == (404, "coordination_row_not_found")
        assert await deployment.until_finished(event) == "Committed"
        detail = (await client.get(f"/events/{event}")).json()
        assert detail["event"]["mode"] == "two-phase"
        states = [step["state"] for step in detail["timeline"]]
        assert set(states) >= {
            "Created",
            "Saving",
            "Saved",
            "Activated",
            "Preparing",
            "Prepared",
            "Processing",
            "Processed",
            "Committing",
            "Committed",
        }
        assert detail["readers"][0]["vote"] == "yes"
        payloads = (await client.get(f"/events/{event}/payloads")).json()["items"]
        assert [(each["operation"], each["status"]) for each in payloads] == [
            ("Delete", "Processed")
        ]


async def test_bad_requests_are_refused_where_they_are_made(newest_server: TestServer) -> None:
    async with _served(newest_server) as (deployment, client):
        refusals = [
            await client.post("/entities/DummyItem", json={**ITEM, "Name": "x" * 51}),
            await client.post("/entities/DummyItem", json={**ITEM, "Unknown": 1}),
            await client.post("/entities/DummyItem", json={"Name": "no correlation"}),
            await client.post("/entities/DummyItem", json={**ITEM, "Name": "nul \x00"}),
            await client.post("/entities/DummyNode", json={**ITEM, "ParentId": 4711}),
            await client.get("/entities/DummyItem/not-a-number"),
            await client.get("/entities/DummyItem", params={"cursor": "nonsense"}),
            await client.get("/entities/DummyItem", params={"limit": 0}),
        ]
        assert [each.status_code for each in refusals] == [422] * len(refusals)
        assert all(each.headers["content-type"] == "application/problem+json" for each in refusals)
        assert "foreign key" in refusals[4].json()["detail"]
        unknown = [
            await client.post("/entities/Nothing", json={}),
            await client.get("/entities/DummyItem/4711"),
            await client.get("/entities/DummyItem", params={"after": 4711}),
            await client.get("/events/4711"),
            await client.post("/events/4711/cancel"),
            await client.post("/events/4711/retry"),
        ]
        assert [each.status_code for each in unknown] == [404] * len(unknown)
        assert await deployment.run("writer", 'select count(*) from coordination."AppEvent"') == [
            (0,)
        ]


async def test_what_nothing_could_pass_is_refused_instead_of_answered_with_nothing(
    newest_server: TestServer,
) -> None:
    async with _served(newest_server) as (_, client):
        huge = 10**20
        refusals = [
            await client.get("/events", params={"state": "Nope"}),
            await client.get("/events", params={"entity": "Nope"}),
            await client.get("/events", params={"colour": "red"}),
            await client.get("/events", params={"cursor": encode_cursor(huge)}),
            await client.get("/changes", params={"entity": "Nope"}),
            await client.get("/changes", params={"after": huge}),
            await client.get("/entities/DummyItem", params={"Name": "one"}),
            await client.get("/entities/DummyItem", params={"after": huge}),
            await client.get("/entities/DummyItem", params={"cursor": encode_cursor("x")}),
            await client.get(f"/entities/DummyItem/{huge}"),
            await client.get(f"/events/{huge}"),
            await client.get(f"/events/{huge}/payloads"),
            await client.post(f"/events/{huge}/cancel"),
            await client.post(f"/events/{huge}/retry"),
            await client.post("/events/1/cancel", json={"reason": "nul \x00"}),
        ]
        assert [each.status_code for each in refusals] == [422] * len(refusals)
        assert all(each.headers["content-type"] == "application/problem+json" for each in refusals)
        assert (await client.get("/events/4711/payloads")).status_code == 404


async def test_an_event_is_known_as_soon_as_it_is_written(newest_server: TestServer) -> None:
    async with _served(newest_server) as (deployment, client):
        # The Coordinator hears of nothing.
        await deployment.services["writer"].stop()
        created = await client.post("/entities/DummyItem", json=ITEM, params={"mode": "two-phase"})
        event, key = created.json()["event_id"], created.json()["row"]["Id"]
        location = f"/coordination/v1/entities/DummyItem/{key}?after={event}"
        assert created.headers["location"] == location
        detail = (await client.get(f"/events/{event}")).json()
        assert (detail["event"]["state"], detail["event"]["payloads"]) == ("Created", 1)
        assert [step["state"] for step in detail["timeline"]] == ["Created"]
        assert len((await client.get(f"/events/{event}/payloads")).json()["items"]) == 1
        # What an operator wants of it waits until it can be done.
        cancelling = asyncio.create_task(client.post(f"/events/{event}/cancel"))
        async with Writer(deployment.dsns["writer"]):
            assert (await cancelling).status_code in (202, 409)


async def test_a_reader_that_keeps_fewer_columns_is_read_as_it_is(
    newest_server: TestServer,
) -> None:
    async with _served(newest_server) as (deployment, client):
        created = await client.post("/entities/DummyItem", json=ITEM)
        event, key = created.json()["event_id"], created.json()["row"]["Id"]
        await client.get("/entities/DummyItem", params={"after": event})
        await deployment.run("lists", 'alter table "DummyItem" drop column "CorrelationId" cascade')
        await deployment.run(
            "lists", "select coordination.replicate('\"DummyItem\"', p_is_subset => true)"
        )

        async def followed() -> bool:
            return (await client.get("/entities/DummyItem")).status_code == 200

        await wait_until_async(followed, what="routes for the columns that are left")
        found = await client.get(f"/entities/DummyItem/{key}")
        assert found.json() == {"Id": key, "Name": "one"}
        # The version of fewer columns would be another one than the Writer's.
        assert "etag" not in found.headers
        listed = (await client.get("/entities/DummyItem")).json()["items"]
        assert listed == [{"Id": key, "Name": "one"}]


async def test_lists_come_in_pages_and_changes_as_they_are_applied(
    newest_server: TestServer,
) -> None:
    async with _served(newest_server) as (_, client):
        heard: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        listening = asyncio.Event()

        async def listen() -> None:
            async with client.stream("GET", "/changes", params={"entity": "DummyItem"}) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith(":"):
                        listening.set()
                    if line.startswith("data: "):
                        heard.put_nowait(json.loads(line.removeprefix("data: ")))

        listener = asyncio.create_task(listen())
        async with asyncio.timeout(20):
            await listening.wait()
            for _ in range(5):
                event = (await client.post("/entities/DummyItem", json=ITEM)).json()["event_id"]
            first = (
                await client.get("/entities/DummyItem", params={"limit": 3, "after": event})
            ).json()
            rest = (
                await client.get(
                    "/entities/DummyItem", params={"limit": 3, "cursor": first["cursor"]}
                )
            ).json()
            assert (len(first["items"]), len(rest["items"]), rest["cursor"]) == (3, 2, None)
            told = [await heard.get() for _ in range(5)]
        assert [each["type"] for each in told] == ["DummyItem.Insert"] * 5
        assert told[-1]["event_id"] == event
        listener.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener
        readers = (await client.get("/readers")).json()
        assert [reader["reader"] for reader in readers] == ["lists"]
        document = (await client.get("/openapi.json")).json()
        assert "/coordination/v1/entities/DummyNode/{key}" in document["paths"]


EXACT_TABLE = """
create table "Price" ("Id" bigint primary key, "Amount" numeric, "Rate" double precision,
  "Facts" jsonb, "Levels" integer[])
"""


async def test_values_travel_exactly(newest_server: TestServer) -> None:
    async with _served(newest_server) as (deployment, client):
        for part, register in (("writer", "track"), ("lists", "replicate")):
            await deployment.run(part, EXACT_TABLE)
            await deployment.run(part, f"select coordination.{register}('\"Price\"')")

        async def followed() -> bool:
            return (await client.get("/entities/Price")).status_code == 200

        await wait_until_async(followed, what="routes of the new entity")
        body = (
            '{"Id": 1, "Amount": 123456789015.123456, "Rate": -0.0, "Levels": "[0:1]={7,8}",'
            ' "Facts": {"weight": 0.12345678901234567890123}}'
        )
        headers = {"Content-Type": "application/json"}
        created = await client.post("/entities/Price", content=body, headers=headers)
        assert created.status_code == 201, created.text
        address = "/entities/Price/1"
        after = {"after": created.json()["event_id"]}
        stored = 'select "Amount"::text, "Rate"::text, "Facts"::text, "Levels"::text from "Price"'
        wanted = [
            ("123456789015.123456", "-0", '{"weight": 0.12345678901234567890123}', "[0:1]={7,8}")
        ]
        assert await deployment.run("writer", stored) == wanted
        read = await client.get(address, params=after)
        assert await deployment.run("lists", stored) == wanted
        # What a client reads and sends back is what was there, even if it reads numbers as floats.
        row = read.json()
        assert (row["Amount"], row["Levels"]) == ("123456789015.123456", "[0:1]={7,8}")
        assert "0.12345678901234567890123" in read.text
        del row["Id"], row["Facts"]
        changed = await client.patch(address, json=row, headers={"If-Match": read.headers["etag"]})
        assert changed.status_code == 200, changed.text
        assert await deployment.run("writer", stored) == wanted
        listed = await client.get("/entities/Price")
        assert listed.json()["items"] == [read.json()]
        assert "0.12345678901234567890123" in listed.text
        payloads = await client.get(f"/events/{after['after']}/payloads")
        content = payloads.json()["items"][0]["content"]
        assert (content["Amount"], content["Rate"]) == ("123456789015.123456", "-0")


async def test_a_key_may_have_several_parts_and_any_character(newest_server: TestServer) -> None:
    async with _served(newest_server) as (deployment, client):
        for part, register in (("writer", "track"), ("lists", "replicate")):
            await deployment.run(
                part, 'create table "Line" (a text, b numeric, note text, primary key (a, b))'
            )
            await deployment.run(part, f"select coordination.{register}('\"Line\"')")

        async def followed() -> bool:
            return (await client.get("/entities/Line")).status_code == 200

        await wait_until_async(followed, what="routes of the new entity")
        for key in ("plain", "with, comma", 'a "quote"', "a/slash", "ü & ? #", ""):
            created = await client.post("/entities/Line", json={"a": key, "b": 1.5, "note": "x"})
            location = created.headers["location"].removeprefix("/coordination/v1")
            found = await client.get(location)
            assert (found.status_code, found.json()["a"]) == (200, key), location
            gone = await client.delete(location.split("?")[0])
            assert gone.status_code == 200, location


async def test_nobody_gets_in_without_the_token(newest_server: TestServer) -> None:
    async with _served(newest_server, headers={}) as (_, client):
        cancel = await client.post("/events/1/cancel", content="", headers={"Origin": "http://x"})
        assert cancel.status_code in (401, 403)
        assert (await client.get("/readers")).status_code == 401
        wrong = await client.get("/readers", headers={"Authorization": "Bearer pr_other"})
        assert wrong.status_code == 401
        right = await client.get("/readers", headers={"Authorization": "Bearer pr_secret"})
        assert right.status_code == 200


async def test_it_waits_for_the_writers_tables_and_follows_what_is_registered_later(
    newest_server: TestServer,
) -> None:
    with newest_server.clone() as empty, newest_server.clone() as other:
        gateway = Gateway(empty, other, other, token="pr_secret")
        gateway.signals.listen("waiting")
        gateway.signals.listen("followed")
        await gateway.start()
        await gateway.signals.wait("waiting")
        for dsn in (empty, other):
            await asyncio.to_thread(_install, dsn)
        try:
            await gateway.ready()
            async with httpx.AsyncClient(
                base_url=f"{gateway.url}/coordination/v1", headers=BEARER
            ) as client:
                assert (await client.post("/entities/DummyItem", json=ITEM)).status_code == 404
                await asyncio.to_thread(install_sample, empty)
                while "DummyNode" not in await gateway.signals.wait("followed"):
                    pass
                created = await client.post("/entities/DummyItem", json=ITEM)
                assert created.status_code == 201
        finally:
            await gateway.stop()


def _install(dsn: str) -> None:
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
