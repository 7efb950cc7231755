"""Files are copied to another store under load: nothing is lost, doubled or refused.

`POSTROAD_STRESS=1` kills the copying server 100 times in each direction, with 5,000 files.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postroad.exchange.check import check
from postroad.exchange.files import open_storage
from postroad.settings.exchange import ExchangeSettings
from postroad.testing import wait_until
from tests.chaos.exchange.pair import haproxy
from tests.chaos.exchange.test_rolling_restart import CLIENTS, DATABASES, Load
from tests.fixtures.exchange_server import PROGRAM, ExchangeProcess
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tools.crash_table.world import free_port

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
MESSAGES = 5000 if IS_FULL else 150
KILLS = 100 if IS_FULL else 5
# Its messages are handed out when all is over.
KEPT = "books"
NAMES = [*(f"phone-{number}" for number in range(CLIENTS)), *(f"erp-{one}" for one in DATABASES)]


class Stores:
    """A folder and a bucket, and servers that use one of them or both."""

    def __init__(self, dsn: str, folder: Path, s3: S3Server) -> None:
        self.dsn = dsn
        self.folder, self.objects = str(folder / "root"), f"s3://{s3.new_bucket()}/exchange"
        self.settings = {
            "S3_ENDPOINT": s3.endpoint,
            "S3_ACCESS_KEY": ACCESS_KEY,
            "S3_SECRET_KEY": SECRET_KEY,
            "SWEEP_INTERVAL": "500ms",
        }
        self._path = folder
        self._ends = contextlib.ExitStack()
        self.close = self._ends.close

    def serve(self, root: str, second: str | None, port: int) -> ExchangeProcess:
        more = {"SECOND_ROOT": second} if second else {}
        server = ExchangeProcess(self.dsn, self._path, self.settings | more)
        server.root = root  # type: ignore[assignment]
        self._ends.callback(server.end)
        server.start(port)
        return server

    def load(self, server: ExchangeProcess, url: str) -> Load:
        load = Load(url, [server.token(name) for name in NAMES])
        load.start()
        self._ends.callback(load.stop)
        load.until_progress()
        return load

    def left(self) -> int:
        """Ask the command how many files are left in the second store."""
        prefixed = {f"POSTROAD_EXCHANGE__{key}": value for key, value in self.settings.items()}
        shown = subprocess.run(
            [*PROGRAM, "exchange", "migration", "--json"],
            env={"PATH": os.environ["PATH"], "POSTROAD_DATABASE_URL": self.dsn, **prefixed},
            stdout=subprocess.PIPE,
            check=True,
        )
        return int(json.loads(shown.stdout)["files"])

    def until_left(self, most: int) -> None:
        wait_until(lambda: self.left() <= most, what="files are copied", timeout_seconds=120)

    def differences(self, root: str) -> set[str]:
        settings = {key.lower(): value for key, value in self.settings.items()}
        storage = open_storage(root, ExchangeSettings(**settings))
        with psycopg.connect(self.dsn) as connection:
            return {finding.kind for finding in check(connection, storage)}


@pytest.fixture
def stores(database: str, tmp_path: Path, s3: S3Server) -> Iterator[Stores]:
    stores = Stores(database, tmp_path, s3)
    yield stores
    stores.close()


def assert_complete(load: Load, server: ExchangeProcess) -> None:
    """Every message that was sent is there, and handed out at most once."""
    assert load.failures == []
    rows = server.rows(
        "select id, state from exchange.message where kind = 'message' and database_id <> %s", KEPT
    )
    taken = [id_ for ids in load.handed_out.values() for id_ in ids]
    assert len(taken) == len(set(taken))
    assert {id_ for id_, state in rows if state == "done"} == set(taken)
    assert len(rows) == sum(load.sent)


def all_kept(server: ExchangeProcess) -> dict[str, object]:
    """Take the messages of `KEPT`, each of which must come once."""
    erp, found = server.client("erp"), dict[str, object]()
    while True:
        answer = erp.start({"database": KEPT, "attempt": os.urandom(8).hex()})
        if answer["status"] != "STARTED":
            return found
        process = answer["process"]
        assert erp.prepare(process["id"], {})["status"] == "OK"
        assert erp.commit(process["id"])["status"] == "OK"
        assert not found.keys() & {file["id"] for file in process["files"]}
        found |= {file["id"]: file["body"] for file in process["files"]}


@pytest.mark.timeout(3600 if IS_FULL else 300)
@pytest.mark.parametrize("is_back", [False, True], ids=["to objects", "to a folder"])
def test_nothing_is_lost_when_the_copying_server_is_killed(stores: Stores, is_back: bool) -> None:
    old, new = stores.folder, stores.objects
    if is_back:
        old, new = new, old
    port = free_port()
    first = stores.serve(old, new, port)
    phone = first.client("phone")
    for number in range(MESSAGES):
        phone.send(KEPT, {"n": number}, id=f"kept-{number}")
    load = stores.load(first, first.url)
    first.end()
    server = stores.serve(new, old, port)
    begun = stores.left()
    assert begun > MESSAGES / 2
    chance = random.Random(7)
    for goal in sorted((chance.randrange(begun) for _ in range(KILLS)), reverse=True):
        stores.until_left(goal)
        server.end(signal.SIGKILL)
        server.start(port)
    stores.until_left(0)
    load.until_progress()
    load.stop()
    server.end()
    last = stores.serve(new, None, port)
    assert_complete(load, last)
    assert all_kept(last) == {f"kept-{number}": {"n": number} for number in range(MESSAGES)}
    # Copies that were not recorded, because the server was killed.
    assert stores.differences(new) <= {"unlisted", "temporary"}


@pytest.mark.timeout(300)
def test_servers_change_their_store_one_after_another_and_refuse_nothing(
    stores: Stores, tmp_path: Path
) -> None:
    ports, port = [free_port(), free_port()], free_port()
    folder, objects = stores.folder, stores.objects
    servers = [stores.serve(folder, None, one) for one in ports]
    with haproxy(port, ports, tmp_path / "haproxy.cfg"):
        load = stores.load(servers[0], f"http://127.0.0.1:{port}")
        for root, second in ((folder, objects), (objects, folder), (objects, None)):
            if second is None:
                stores.until_left(0)
            for place in (0, 1):
                servers[place].end()
                load.until_progress()
                servers[place] = stores.serve(root, second, ports[place])
                load.until_progress()
        load.stop()
    assert_complete(load, servers[0])
    assert stores.differences(objects) == set()
