"""Something to see in every room, so that no page is looked at empty."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Page
from psycopg.types.json import Jsonb

from postroad.alerts import raise_alert
from postroad.bridge import operations as bridge_operations
from postroad.bridge.addresses import Addresses
from postroad.bus import Bus, Saga
from postroad.exchange import operations as exchange_operations
from postroad.intake import operations as intake_operations
from postroad.intake.credentials import Credentials
from postroad.postgres import run_blocking
from postroad.postgres.calls import call
from postroad.postgres.connections import connect, connect_async
from postroad.settings import BridgeDefinition
from postroad.testing import wait_until
from postroad.vault import Vault, create_key_file
from tests.fixtures.console import RunningConsole

__all__ = ["LANGUAGES", "PAGES", "Stage", "dead_messages", "look", "press", "run_apart"]

# English on a desk, Russian on a phone: what holds in both holds in between.
LANGUAGES = pytest.mark.parametrize(
    ("language", "width"), [("en", 1360), ("ru", 390)], ids=["english", "russian-phone"]
)
# Every page there is, by room; a test compares this with the pages that are registered.
PAGES: Mapping[str, Mapping[str, str]] = {
    "bus": {
        "bus": "/bus",
        "queue": "/bus/queues/shop_orders",
        "messages": "/bus/queues/shop_orders/messages",
        "dead-messages": "/bus/queues/shop_orders/messages?state=dead",
        "message": "/bus/messages/{iid}",
        "dead": "/bus/dead",
        "dead-list": "/bus/dead/messages?queue=shop_orders",
        "waiting": "/bus/waiting",
        "sagas": "/bus/sagas",
        "schedules": "/bus/schedules",
        "schedule": "/bus/schedules/shop large",
        "missing-schedule": "/bus/schedules/nobody",
        "replays": "/bus/replays",
        "saga": "/bus/sagas/{saga_id}",
        "empty-queue": "/bus/queues/shop_empty/messages",
        "missing-queue": "/bus/queues/nobody",
        "missing-saga": "/bus/sagas/999999",
    },
    "components": {
        "exchange": "/exchange",
        "process": "/exchange/processes/{process}",
        "exchange-messages": "/exchange/messages",
        "exchange-message": "/exchange/messages/{message}",
        "exchange-clients": "/exchange/clients",
        "missing-process": "/exchange/processes/nobody",
        "coordination": "/coordination",
        "event": "/coordination/events/{event}",
        "missing-event": "/coordination/events/999999",
        "intake": "/intake",
        "intake-servers": "/intake/servers",
        "server": "/intake/servers/shop-files",
        "intake-files": "/intake/files",
        "file": "/intake/files/{file}",
        "failed-file": "/intake/files/{failed_file}",
        "missing-file": "/intake/files/999999",
        "bridges": "/bridges",
    },
    "context": {
        "overview": "/",
        "tour": "/tour",
        "find": "/find?q={iid}",
        "alerts": "/alerts",
        "all-alerts": "/alerts?show=all",
        "workers": "/workers",
        "no-log": "/workers/nobody/log",
        "settings": "/settings",
        "accounts": "/accounts",
        "audit": "/audit",
    },
}


def press(page: Page, test: str) -> None:
    """Click the first button that carries this mark."""
    page.locator(f'[data-test="{test}"]').first.click()


def look(console: RunningConsole, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Ask the console's database."""
    with psycopg.connect(console.dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def dead_messages(bus: Bus, queue: str, errors: list[str]) -> None:
    """Post one message for each error, and let it die of that."""
    bus.post_many(queue, [{"n": n} for n in range(len(errors))])
    for held, error in zip(bus.lease(queue, amount=len(errors)), errors, strict=True):
        bus.nack(held, error=error, park=True)


def run_apart(work: Coroutine[Any, Any, Any]) -> None:
    """Run something that awaits: in this thread there is the loop of the browser already."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class Stage:
    """A shop in every room: orders, dead ones, sagas, an ERP in doubt, items, files, alerts."""

    def __init__(self, console: RunningConsole) -> None:
        self._console = console
        self._dsn = console.dsn
        self._names: dict[str, object] = {}

    def path(self, room: str, page: str) -> str:
        """Return the address of a page."""
        return PAGES[room][page].format(**self._names)

    def set(self) -> None:
        """Do it."""
        with Bus(self._dsn) as bus:
            self._set_bus(bus)
        self._set_exchange()
        self._set_coordination()
        self._set_intake()
        run_apart(self._set_bridge())
        run_apart(self._set_services())
        with connect(self._dsn) as connection:
            raise_alert(
                connection,
                "disk/shop",
                room="intake",
                severity="warning",
                title="the disk of the shop is nearly full",
                text="4 % are free",
            )

    def _set_bus(self, bus: Bus) -> None:
        names = ("orders", "bills", "rooms", "no_rooms", "empty", "kept")
        for queue in (f"shop_{name}" for name in names):
            bus.create_queue(queue, payload="jsonb")
        bus.alter_queue("shop_kept", retain=timedelta(days=1))
        bus.post("shop_kept", {"number": 1})
        bus.consume("shop_kept")
        bus.replay("shop_kept")
        bus.schedule("shop large", "0 3 * * *", "shop_empty", {"report": 1})
        bus.create_consumer("shop_orders", "large", "(t.properties->'SIZE')='large'")
        iids = bus.post_many(
            "shop_orders",
            [{"number": number, "city": "Tver"} for number in range(60)],
            properties=[{"SIZE": "large" if number % 7 == 0 else "small"} for number in range(60)],
        )
        for held in bus.lease("shop_orders", amount=3):
            bus.nack(held, error="no such customer: nobody", park=True)
        self._names["iid"] = iids[10]
        bus.post("shop_orders", {"number": 99}, delayed_until=datetime.now(UTC) + timedelta(days=1))
        first = bus.post("shop_bills", {"bill": 1})
        second = bus.post("shop_bills", {"bill": 2}, headers={"consume_after": f"{{{first}}}"})
        bus.post("shop_bills", {"bill": 3}, headers={"consume_after": f"{{{second}}}"})
        saga = (
            Saga("tour", data={"tour": 4711})
            .step("room", do="shop_rooms", undo="shop_no_rooms")
            .step("ticket", do="shop_bills", after=["room"])
            .step("transfer", do="shop_bills", after=["ticket"])
        )
        self._names["saga_id"] = saga.start(bus)
        bus.consume("shop_rooms")

    def _set_exchange(self) -> None:
        """Leave one process in doubt, and messages that wait for another."""
        token = run_blocking(
            self._dsn, exchange_operations.add_client, "shop-erp", databases=None
        ).token
        with httpx.Client(
            base_url=f"{self._console.exchange_url}/exchange/v1",
            headers={"Authorization": f"Bearer {token}"},
        ) as erp:
            for number in range(3):
                database = "shop-sales" if number == 0 else "shop-stock"
                message = {"id": f"shop-{number}", "database": database, "body": {"n": number}}
                assert erp.post("/messages", json=message).is_success
            begun = erp.post("/processes", json={"database": "shop-sales", "attempt": "one"}).json()
            process = begun["process"]["id"]
            erp.post(f"/processes/{process}/prepare", json={"replies": [], "results": {}})
        state = "select state from exchange.process where id = %s"
        wait_until(
            lambda: look(self._console, state, process) == [("UNKNOWN",)], what="it is in doubt"
        )
        self._names["process"] = process
        numbers = "select number from exchange.message where id = 'shop-1'"
        self._names["message"] = look(self._console, numbers)[0][0]

    def _set_coordination(self) -> None:
        lab = self._console.lab
        lab.write("""insert into "DummyNode" ("Name") values ('shelf')""")
        self._names["event"] = lab.write("""update "DummyNode" set "Name" = 'drawer'""")
        lab.settle()

    def _set_intake(self) -> None:
        files = (
            ("prices.csv", "completed", 2_000_000, 2_000_000, None),
            ("photos.zip", "downloading", 800_000_000, 300_000_000, None),
            ("torn.xml", "failed", 1_200, 0, "the checksum differs after 5 attempts"),
            ("orders.csv", "discovered", 90_000, 0, None),
        )
        with psycopg.connect(self._dsn) as connection:
            vault = Vault.from_file(create_key_file(self._console.folder / "vault.key"))
            made = run_blocking(
                self._dsn,
                intake_operations.create_server,
                vault,
                Credentials(password="secret"),
                {"name": "shop-files", "host": "127.0.0.1", "port": 2, "username": "nobody"},
            )
            connection.execute(
                "update intake.sftp_servers set is_active = false where name = 'shop-files'"
            )
            for name, status, size, done, error in files:
                row = connection.execute(
                    "insert into intake.imported_files (server_id, filename, path, filesize, mtime,"
                    " version, status, error_message, bytes_done, lease_token, lease_owner,"
                    " lease_until, completed_at)"
                    " select %(server)s, %(name)s::text, convert_to(%(name)s::text, 'utf8'),"
                    " %(size)s, 1, 1, %(status)s, %(error)s, %(done)s, v.token, v.owner, v.until,"
                    " case when %(status)s = 'completed' then now() end"
                    " from (values (case when %(status)s = 'downloading' then 1 end,"
                    " case when %(status)s = 'downloading' then 'worker-1' end,"
                    " case when %(status)s = 'downloading' then now() + interval '1 hour' end))"
                    " v(token, owner, until) returning id",
                    {
                        "server": made["id"], "name": name, "size": size, "status": status,
                        "error": error, "done": done,
                    },
                ).fetchone()  # fmt: skip
                assert row is not None
                self._names["failed_file" if status == "failed" else "file"] = row[0]

    async def _set_bridge(self) -> None:
        target = self._console.lab.dsns["coordinator"]
        with Bus(target) as bus:
            bus.create_queue("shop_orders", payload="jsonb")
        definition = BridgeDefinition(source="home", target=target, queue="shop_orders")
        await bridge_operations.add(Addresses(self._dsn), definition, "shop_bridge")

    async def _set_services(self) -> None:
        now = datetime.now(UTC).isoformat()
        async with await connect_async(self._dsn, autocommit=True) as connection:
            reports = [
                {"name": "web", "state": "running", "pid": 4711, "restarts": 0, "since": now},
                {"name": "alerts", "state": "waiting", "restarts": 3, "since": now,
                 "error": "exit code 1: no route"},
            ]  # fmt: skip
            await call(connection, "console.report_services", "shop-host", Jsonb(reports))
