"""Something to see in every room, so that no page is looked at empty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page

from postroad.alerts import raise_alert
from postroad.bus import Bus, Saga
from postroad.postgres.connections import connect
from tests.fixtures.console import RunningConsole

__all__ = ["LANGUAGES", "PAGES", "Stage", "look", "press"]

# English on a desk, Russian on a phone: what holds in both holds in between.
LANGUAGES = pytest.mark.parametrize(
    ("language", "width"), [("en", 1360), ("ru", 390)], ids=["english", "russian-phone"]
)
PAGES: dict[str, str] = {
    "overview": "/",
    "bus": "/bus",
    "queue": "/bus/queues/shop_orders",
    "messages": "/bus/queues/shop_orders/messages",
    "dead-messages": "/bus/queues/shop_orders/messages?state=dead",
    "message": "/bus/messages/{iid}",
    "dead": "/bus/dead",
    "waiting": "/bus/waiting",
    "sagas": "/bus/sagas",
    "saga": "/bus/sagas/{saga_id}",
    "alerts": "/alerts",
    "bridges": "/bridges",
    "exchange": "/exchange",
    "coordination": "/coordination",
    "intake": "/intake",
    "intake-servers": "/intake/servers",
    "intake-files": "/intake/files",
    "exchange-messages": "/exchange/messages",
    "workers": "/workers",
    "settings": "/settings",
    "accounts": "/accounts",
    "audit": "/audit",
    "empty-queue": "/bus/queues/shop_empty/messages",
    "missing-queue": "/bus/queues/nobody",
    "missing-saga": "/bus/sagas/999999",
}


def press(page: Page, test: str) -> None:
    """Click the first button that carries this mark."""
    page.locator(f'[data-test="{test}"]').first.click()


def look(console: RunningConsole, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Ask the console's database."""
    with psycopg.connect(console.dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


class Stage:
    """Fills a database with a shop: orders, dead ones, waiting ones, a saga, an alert."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._names: dict[str, str] = {}

    def path(self, page: str) -> str:
        """Return the address of a page."""
        return PAGES[page].format(**self._names)

    def set(self) -> None:
        """Do it."""
        with Bus(self._dsn) as bus:
            self._set_bus(bus)
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
        for queue in ("shop_orders", "shop_bills", "shop_rooms", "shop_no_rooms", "shop_empty"):
            bus.create_queue(queue, payload="jsonb")
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
        self._names["saga_id"] = str(saga.start(bus))
        bus.consume("shop_rooms")
