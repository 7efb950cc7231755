"""Sample partners of the exchange: an ERP and a mobile client, so that a first run has traffic.

```
SampleMobileClient ──order──> exchange ──process──> SampleErp ──insert──> its own SQLite file
        ▲                                               │
        └────────────────── confirmation ───────────────┘
```
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import uuid
from datetime import timedelta
from pathlib import Path

from postroad.exchange.client import AsyncExchange, Exchange, ExchangeClientError, Work
from postroad.service import Service

logger = logging.getLogger(__name__)

INTERVAL_DEFAULT = timedelta(seconds=1)
ITEMS = ("bread", "milk", "apples", "nails", "paper")
_TABLE = (
    "create table if not exists sample_order"
    " (sender text not null, id text not null, item text, amount integer, process_id text,"
    " primary key (sender, id))"
)


class SampleErp(Service):
    """Polls for orders, writes one row per order, and confirms each to its sender.

    `orders` counts what was committed since the start. Signal: `worked` with the number of files.
    """

    def __init__(
        self,
        database: str,
        *,
        url: str,
        token: str,
        file: Path,
        interval: timedelta = INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("sample ERP")
        self._database = database
        self._exchange = Exchange(url, token, patience=5.0)
        self._file = file
        self._interval = interval
        self.orders = 0

    async def run(self) -> None:
        """Process orders until stopped; continue when the exchange is back."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.announce_ready()
        while not self.stopping.is_set():
            try:
                count = await asyncio.to_thread(self._process)
            except (ExchangeClientError, sqlite3.Error) as failure:
                logger.warning("sample_erp_failed", extra={"reason": str(failure)})
                count = 0
            self.orders += count
            if count:
                self.signals.emit("worked", count)
            else:
                await self.pause(self._interval.total_seconds())

    def _process(self) -> int:
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.execute(_TABLE)
            with self._exchange.process(self._database, connection) as work:
                return self._take_orders(connection, work)

    def _take_orders(self, connection: sqlite3.Connection, work: Work) -> int:
        for file in work.files:
            for message in file.messages:
                order = message["body"]
                if not isinstance(order, dict) or "item" not in order:
                    work.reject(file, "an order names its item")
                    break
                connection.execute(
                    "insert into sample_order (sender, id, item, amount, process_id)"
                    " values (?, ?, ?, ?, ?)",
                    (file.sender, message["id"], order["item"], order.get("amount", 1), work.id),
                )
            else:
                work.reply(file.sender, {"order": file.id, "status": "taken"}, reply_to=file)
        return len(work.files)


class SampleMobileClient(Service):
    """Sends an order per interval; `sent` and `confirmed` count them. Signal: `confirmed`."""

    def __init__(
        self, database: str, *, url: str, token: str, interval: timedelta = INTERVAL_DEFAULT
    ) -> None:
        super().__init__("sample mobile client")
        self._database = database
        self._exchange = AsyncExchange(url, token, patience=5.0)
        self._interval = interval
        self.sent = 0
        self.confirmed = 0

    async def run(self) -> None:
        """Send orders until stopped; continue when the exchange is back."""
        self.announce_ready()
        order = self._next_order()
        while not self.stopping.is_set():
            try:
                await self._exchange.send(self._database, order["body"], id=str(order["id"]))
                self.sent += 1
                order = self._next_order()
                for reply in await self._exchange.receive():
                    await self._exchange.ack(reply)
                    self.confirmed += 1
                    self.signals.emit("confirmed", reply.body)
            except ExchangeClientError as failure:
                logger.warning("sample_client_failed", extra={"reason": str(failure)})
            await self.pause(self._interval.total_seconds())

    @staticmethod
    def _next_order() -> dict[str, object]:
        item = random.choice(ITEMS)  # noqa: S311 - a sample
        amount = random.randint(1, 9)  # noqa: S311 - a sample
        return {"id": uuid.uuid4().hex, "body": {"item": item, "amount": amount}}
