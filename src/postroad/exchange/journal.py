"""The journal of the exchange: schema `exchange`, called by one server."""

from __future__ import annotations

from typing import Any

from postroad.postgres.journal import Journal

DATABASES = "select d.id from exchange.database d order by d.id"
CONNECTIONS = 8
# The parameter p_now: null, because the clock of the journal is used. Older servers pass their own.
NOW = None
REPLIES = (
    "select r.*, m.object from exchange.replies(%s, %s, %s, %s) r"
    " join exchange.message m on m.number = r.number order by r.number"
)


class ExchangeJournal(Journal):
    """Calls the functions of the schema; those that change something check the `epoch`."""

    def __init__(self, dsn: str, *, is_pooled: bool = False) -> None:
        super().__init__(dsn, "exchange", connections=CONNECTIONS, is_pooled=is_pooled)
        # The generation of the server, and whether it sweeps; see `exchange.report_running`.
        self.epoch = 0
        self.is_sweeper = False

    async def decide(self, function: str, *parameters: Any) -> Any:
        """Call a function whose first parameter is the epoch, on the trace of this request."""
        return await self.change(function, self.epoch, *parameters)
