"""The databases that a server has opened: known to the journal, with their folders."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.mover import Mover


@dataclass
class Databases:
    """Opens databases; a new one is created if the settings allow it."""

    journal: ExchangeJournal
    mover: Mover
    creates: bool
    opened: set[str] = field(default_factory=set)

    async def open(self, database: str, *, may_create: bool = True) -> None:
        """Ensure that a database is known and has its folders. Raises DatabaseNotFound."""
        if database not in self.opened:
            await self.journal.select("find_database", database, may_create and self.creates)
            await self.mover.in_thread(self.mover.storage.make_database, database)
            self.opened.add(database)
