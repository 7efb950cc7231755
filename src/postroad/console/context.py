"""The dependencies of every page of the console; the command line creates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from postroad.bus import AsyncBus
from postroad.bus.maintenance import MAINTENANCE_AGE
from postroad.console.accounts import Accounts
from postroad.console.cache import Cache
from postroad.console.connections import Connections, Place
from postroad.console.history import History
from postroad.operate import Resource, Row
from postroad.postgres.calls import value
from postroad.settings import ConsoleSettings, HttpSettings
from postroad.settings_sources import Effective


@dataclass
class Components:
    """Dependencies of the components' pages."""

    # The storage of the files of the exchange.
    exchange: Any
    bridge_addresses: Any
    vault: Any
    # Connections to coordination's own databases: writer, coordinator, reader.
    coordination: dict[str, Connections]
    # Logs in to an SFTP server and lists its folder.
    try_server: Callable[[int], Awaitable[dict[str, Any]]]
    # Restarts a service of this process and its children, whose logs are in a folder.
    restart: Callable[[str], bool] | None = None
    logs: Path | None = None


@dataclass
class Context:
    """Dependencies of all pages of a process."""

    bus: AsyncBus
    accounts: Accounts
    settings: ConsoleSettings
    http: HttpSettings
    history: History
    connections: Connections
    components: Components
    effective: Sequence[Effective] = ()
    cache: Cache = field(default_factory=Cache)
    more: dict[str, Any] = field(default_factory=dict)
    # Stops a sample service by name for a number of seconds; None where no sample runs.
    crash: Callable[[str, float], None] | None = None

    async def maintenance_age(self) -> timedelta:
        """Return the time since bus maintenance last ran, shared by all pages."""
        read = partial(self.connections.run, value, MAINTENANCE_AGE)
        return await self.cache.get("maintenance", read, 5)

    def place_of(self, resource: Resource) -> Connections:
        """Return the connections to a resource's database, or the value that it is read from."""
        if resource.component == "coordination":
            return self.components.coordination["coordinator"]
        if resource.component == "bridge":
            return Place(self.components.bridge_addresses)
        return Place(self.effective) if resource.name == "console.settings" else self.connections

    def reading(
        self, resource: Resource, filters: Mapping[str, str] | None = None, **page: Any
    ) -> tuple[object, Callable[[], Awaitable[Sequence[Row]]]]:
        """Return the key and the function with which `Cache.get` reads rows of a resource.

        These are all rows that match; with further arguments of `Resource.page` those of the page.
        """

        async def read() -> Sequence[Row]:
            run = self.place_of(resource).run
            if page:
                return (await run(resource.page, filters, **page)).rows
            return await run(resource.all, filters)

        return (resource.name, *(filters or {}).items(), *page.items()), read
