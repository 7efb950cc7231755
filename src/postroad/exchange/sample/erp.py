"""A sample ERP: takes orders in two-phase processes into a SQLite database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from datetime import timedelta
from pathlib import Path

from postroad.exchange.client import Exchange, ExchangeClientError, Work
from postroad.service import Service

__all__ = ["SampleErp"]

logger = logging.getLogger(__name__)

LOOK_INTERVAL_DEFAULT = timedelta(seconds=1)
_TABLE = (
    "create table if not exists sample_order"
    " (sender text not null, id text not null, item text, amount integer, process_id text,"
    " primary key (sender, id))"
)


class SampleErp(Service):
    """Asks for work, writes one row per order, and confirms each to its sender.

    `orders` counts what was committed since the start. Signal: `worked` with the number of files.
    """

    def __init__(
        self,
        database: str,
        *,
        url: str,
        token: str,
        file: Path,
        interval: timedelta = LOOK_INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("sample ERP")
        self._database = database
        self._exchange = Exchange(url, token, patience=5.0)
        self._file = file
        self._interval = interval
        self.orders = 0
        self.failures = 0

    async def run(self) -> None:
        """Work until stopped; go on when the exchange comes back."""
        await asyncio.to_thread(self._install)
        self.announce_ready()
        while not self.stopping.is_set():
            try:
                count = await asyncio.to_thread(self._turn)
            except (ExchangeClientError, sqlite3.Error) as failure:
                self.failures += 1
                logger.warning("sample_erp_failed", extra={"reason": str(failure)})
                count = 0
            self.orders += count
            if count:
                self.signals.emit("worked", count)
            else:
                await self.pause(self._interval.total_seconds())

    def _install(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.execute(_TABLE)
            connection.commit()

    def _turn(self) -> int:
        with (
            contextlib.closing(sqlite3.connect(self._file)) as connection,
            self._exchange.process(self._database, connection) as work,
        ):
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
