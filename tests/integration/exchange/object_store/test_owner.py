"""One journal uses a store: copies, restored ones and a store that is away do no harm."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator

import psycopg
import pytest

from postroad.cli.components import SCHEMAS
from postroad.exchange.errors import RootForeign, RootLocked, StorageFailed, TakenOver
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import TestServer
from tests.fixtures.exchange import LocalExchange
from tests.fixtures.s3 import S3Server
from tests.integration.exchange.object_store.conftest import (
    Store,
    checked,
    listings,
    start_another,
    until,
)


async def test_a_missing_bucket_and_a_foreign_one_are_refused(
    local: LocalExchange, store: Store, s3: S3Server
) -> None:
    settings = ExchangeSettings(**local.settings)
    missing = ExchangeServer(local.dsn, "s3://no-such-bucket/x", settings, port=0)
    await missing.start()
    with pytest.raises(StorageFailed, match="there is no bucket no-such-bucket"):
        await missing.ready()
    await local.caller("phone").send("m1")
    other = ExchangeServer(local.dsn, f"s3://{s3.new_bucket()}", settings, port=0)
    await other.start()
    with pytest.raises(RootForeign):
        await other.ready()


@contextlib.contextmanager
def _copy_of(local: LocalExchange, server: TestServer) -> Iterator[str]:
    """Yield a database whose journal has the root and the runs of another one."""
    facts = "root_id, served_seconds, epoch, runs"
    (row,) = local.rows(f"select {facts} from exchange.server")
    with server.clone(*SCHEMAS) as copy:
        with psycopg.connect(copy) as connection:
            connection.execute(
                f"update exchange.server set ({facts}) = (%s, %s, %s, %s)", tuple(row.values())
            )
        yield copy


async def test_a_copy_of_the_database_does_not_use_the_same_bucket(
    local: LocalExchange, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    await until(store.is_marked, "the store marked by the server that sweeps")
    with _copy_of(local, server) as copy:
        before = store.served_seconds()
        await until(lambda: store.served_seconds() > before + 1, "the original going on")
        second = ExchangeServer(copy, store.root, ExchangeSettings(**local.settings), port=0)
        await second.start()
        with pytest.raises(RootLocked):
            await second.ready()
    await local.restart()
    await local.caller("phone").send("m1")


async def test_a_server_whose_root_a_copy_has_taken_stops_with_an_alert(
    database: str, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 1e9)
    local = LocalExchange(database, store.root, **store.settings)
    await local.server.start()
    await local.server.ready()
    await until(store.is_marked, "the store marked by the server that sweeps")
    with _copy_of(local, server) as copy:
        # It starts before the original has marked the store again: both have the same facts.
        second = LocalExchange(copy, store.root, **store.settings)
        await second.server.start()
        await second.server.ready()
        monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
        with pytest.raises(TakenOver):
            await local.server.join()
        assert local.alerts() == ["exchange/store"]
        # Not even when it is started again.
        with pytest.raises(RootLocked):
            await start_another(local)
        await second.caller("phone").send("m1")
        await second.close()


async def test_an_empty_journal_does_not_take_the_bucket_of_another(
    local: LocalExchange, store: Store, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the other servers had stopped long ago.
    monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 0.0)
    await local.caller("phone").send("m1")
    await local.server.stop()
    with server.clone(*SCHEMAS) as other:
        second = ExchangeServer(other, store.root, ExchangeSettings(**local.settings), port=0)
        await second.start()
        with pytest.raises(RootForeign, match="the root of another journal"):
            await second.ready()
    assert len(store.contents()) == 1


async def test_a_restored_journal_keeps_the_objects_that_it_does_not_name(
    database: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    local = LocalExchange(
        database, store.root, **store.settings, retention_interval="100ms", orphan_age="1h"
    )
    await local.server.start()
    await local.server.ready()
    try:
        await local.caller("phone").send("m1")
        await until(store.is_marked, "the store marked by the server that sweeps")
        epoch = local.rows("select epoch from exchange.server")[0]["epoch"]
        await local.server.stop()
        # What the journal has forgotten, by the server of the next generation.
        lost = f"object-{epoch + 1}.00000000.7"
        store.put(lost, b"lost")
        store.age(lost, hours=2)
        local.rows("update exchange.server set served_seconds = 0 returning 1")
        monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 0.0)
        listed = listings(monkeypatch)
        await local.restart()
        monkeypatch.setattr("postroad.exchange.objects.IN_USE_SECONDS", 60.0)
        assert local.alerts() == ["exchange/older"]
        await until(lambda: len(listed) >= 2, "the store listed twice")
        assert lost in store.contents()
        assert checked(local) == [("unlisted", lost, False)]
    finally:
        await local.close()


async def test_a_lost_or_damaged_marker_is_reported_with_what_to_write(
    local: LocalExchange, store: Store
) -> None:
    await local.caller("phone").send("m1")
    await local.server.stop()
    store.put(".root.json", b"{", "")
    with pytest.raises(RootForeign, match="cannot be read"):
        await start_another(local)
    store.remove(".root.json", "")
    with pytest.raises(RootForeign, match="has no marker") as raised:
        await start_another(local)
    root = local.rows("select root_id from exchange.server")[0]["root_id"]
    assert f'{{"root": "{root}"}}' in str(raised.value.hint)
    store.put(".root.json", json.dumps({"root": str(root)}).encode(), "")
    await local.restart()


async def test_a_store_that_does_not_answer_stops_neither_heartbeat_nor_timeouts_nor_the_end(
    database: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.exchange.collector.MARK_SECONDS", 0.1)
    local = LocalExchange(database, store.root, **store.settings)
    await local.server.start()
    await local.server.ready()
    phone, erp = local.caller("phone"), local.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    await erp.prepare(process["id"], [{"name": "r1", "recipient": "phone", "body": 1}])
    store.server.suspend()
    try:
        served = "select served_seconds, exchange.now() as now from exchange.server"
        (before,) = local.rows(served)
        body = {"id": "m2", "database": "sales", "body": 2}
        sending = asyncio.create_task(phone.call("POST", "/messages", json=body))
        await until(
            lambda: local.rows(served)[0]["served_seconds"] > before["served_seconds"] + 3,
            "the time going on",
        )
        local.rows("update exchange.process set deadline = 0 returning 1")
        await until(lambda: local.state(process["id"]) != "READY", "the process timed out")
        stopping = asyncio.create_task(local.server.stop())
        await until(stopping.done, "the server stopped")
        assert local.rows("select epoch from exchange.member") == []
    finally:
        store.server.resume()
    await asyncio.gather(sending, stopping, return_exceptions=True)
    await local.close()
