"""The path of a file: from SFTP to its object, the notice, and the consumer of the notice."""

from __future__ import annotations

import psycopg

from postroad.bus import Bus
from postroad.bus import resources as bus
from postroad.intake import resources as intake
from postroad.intake.engine import Engine
from postroad.operate import Row
from postroad.operate.journey import Search, found, searched
from tests.integration.intake.partner import Partner, run_once


async def search(dsn: str, text: str) -> list[Row]:
    one = Search(text)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        while wanted := one.round():
            for resource in searched(bus, intake):
                one.add(resource, await found(connection, resource, wanted))
    return one.steps


async def test_a_file_is_followed_to_the_consumer_of_its_notice(
    engine: Engine, partner: Partner, database: str
) -> None:
    partner.rows(
        "select mbus.alter_queue('file_events', track => 'filename', retain => '1 day')::text"
    )
    partner.write("invoice-4711.csv", b"a;b\n")
    await run_once(engine, partner)
    name = partner.file("invoice-4711.csv")["filename"]
    # Another scan, and so another trace.
    partner.write("other.csv", b"c;d\n")
    await run_once(engine, partner)
    steps = await search(database, name)
    assert [(one["component"], one["kind"], one["state"]) for one in steps] == [
        ("intake", "file", "completed"),
        ("bus", "message", "ready"),
    ]
    file, notice = steps
    assert file["place"] == partner.server["name"]
    assert notice["place"] == "file_events → default"
    assert set(file["links"]) & set(notice["links"])
    with Bus(database) as client:
        leased, other = client.lease("file_events", amount=9)
        assert (leased.iid, other.iid != leased.iid) == (notice["id"], True)
        (_, held) = await search(database, name)
        assert (held["state"], held["attempts"]) == ("leased", 1)
        client.ack(leased)
    (_, consumed) = await search(database, name)
    assert consumed["state"] == "retained"
    # The notice leads back to its file.
    assert [one["kind"] for one in await search(database, notice["id"])] == ["file", "message"]
