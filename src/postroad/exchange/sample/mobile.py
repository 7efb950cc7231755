"""A sample mobile client: sends orders, and fetches and acknowledges what comes back."""

from __future__ import annotations

import logging
import random
import uuid
from datetime import timedelta

from postroad.exchange.client import AsyncExchange, ExchangeClientError
from postroad.service import Service

__all__ = ["SampleMobileClient"]

logger = logging.getLogger(__name__)

ITEMS = ("bread", "milk", "apples", "nails", "paper")
ORDER_INTERVAL_DEFAULT = timedelta(seconds=1)


class SampleMobileClient(Service):
    """Sends an order every so often; `sent` and `confirmed` count them. Signal: `confirmed`."""

    def __init__(
        self,
        database: str,
        *,
        url: str,
        token: str,
        interval: timedelta = ORDER_INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("sample mobile client")
        self._database = database
        self._exchange = AsyncExchange(url, token, patience=5.0)
        self._interval = interval
        self.sent = 0
        self.confirmed = 0

    async def run(self) -> None:
        """Order until stopped; go on when the exchange comes back."""
        self.announce_ready()
        # Made before it is sent and kept until it is: sending it again is then harmless.
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
