"""A server of the exchange whose files are in an S3-compatible store."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from postroad.exchange.check import check
from postroad.exchange.files import open_storage
from postroad.exchange.objects import ObjectStorage
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import wait_until_async
from tests.fixtures.exchange import LocalExchange
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, RcloneS3, S3Server


class Store:
    """A bucket, and the settings that name it."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = server.new_bucket()
        self.root = f"s3://{self.bucket}/exchange"
        self.settings = {
            "s3_endpoint": server.endpoint,
            "s3_access_key": ACCESS_KEY,
            "s3_secret_key": SECRET_KEY,
        }

    def contents(self, database: str = "sales") -> dict[str, bytes]:
        """Return the objects of a database by name."""
        prefix = f"exchange/{database}/"
        found = self.server.objects(self.bucket).items()
        return {key.removeprefix(prefix): body for key, body in found if key.startswith(prefix)}

    def put(self, name: str, body: bytes, database: str = "sales") -> None:
        key = "/".join(filter(None, ("exchange", database, name)))
        self.server.client().put_object(Bucket=self.bucket, Key=key, Body=body)

    def is_marked(self) -> bool:
        """Return whether the server that sweeps has written the marker."""
        return self.served_seconds() > 0

    def served_seconds(self) -> float:
        """Return the time in the marker."""
        found = json.loads(self.server.objects(self.bucket)["exchange/.root.json"])
        return float(found["served_seconds"])

    def age(self, name: str, *, hours: int) -> None:
        """Set the time at which an object was written."""
        assert isinstance(self.server, RcloneS3)
        at = time.time() - hours * 3600
        os.utime(self.server.objects_folder / self.bucket / "exchange/sales" / name, (at, at))

    def remove(self, name: str, database: str = "sales") -> None:
        key = "/".join(filter(None, ("exchange", database, name)))
        self.server.client().delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture
def store(s3: S3Server) -> Store:
    return Store(s3)


@pytest.fixture
async def local(database: str, store: Store) -> AsyncIterator[LocalExchange]:
    local = LocalExchange(database, store.root, **store.settings)
    await local.server.start()
    await local.server.ready()
    yield local
    await local.close()


def folders(local: LocalExchange) -> dict[str, str]:
    rows = local.rows("select id, folder from exchange.message where state <> 'discarded'")
    return {row["id"]: row["folder"] for row in rows}


def object_of(local: LocalExchange, id_: str) -> str:
    return str(local.rows("select object from exchange.message where id = %s", id_)[0]["object"])


def checked(local: LocalExchange, **more: Any) -> list[tuple[str, str, bool]]:
    storage = open_storage(local.root, ExchangeSettings(**local.settings))
    with psycopg.connect(local.dsn) as connection:
        return [(one.kind, one.name, one.is_fixed) for one in check(connection, storage, **more)]


def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each database is added whose objects are listed."""
    listed: list[str] = []
    pages = ObjectStorage.pages

    def listing(storage: ObjectStorage, database: str) -> Any:
        listed.append(database)
        yield from pages(storage, database)

    monkeypatch.setattr(ObjectStorage, "pages", listing)
    return listed


async def start_another(local: LocalExchange) -> None:
    settings = ExchangeSettings(**local.settings)
    another = ExchangeServer(local.dsn, local.root, settings, port=0)
    await another.start()
    await another.ready()


async def until(is_so: Callable[[], bool], what: str) -> None:
    async def now() -> bool:
        return await asyncio.to_thread(is_so)

    await wait_until_async(now, what=what)
