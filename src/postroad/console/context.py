"""The dependencies of every page of the console; the command line creates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroad.console.accounts import Accounts
from postroad.console.cache import Cache

if TYPE_CHECKING:
    from postroad.bus import AsyncBus
    from postroad.console.connections import Connections
    from postroad.console.database import DatabaseFacts
    from postroad.console.history import History
    from postroad.settings import ConsoleSettings, HttpSettings
    from postroad.settings_sources import Effective


@dataclass
class Components:
    """Dependencies of the components' pages; those of one that is not installed are None."""

    # The storage of the files of the exchange.
    exchange: Any = None
    # Restarts a service of this process and its children, whose logs are in a folder.
    restart: Callable[[str], bool] | None = None
    logs: Path | None = None
    bridge_addresses: Any = None
    vault: Any = None
    # Connections to coordination's own databases: writer, coordinator, reader.
    coordination: dict[str, Connections] = field(default_factory=dict)
    # Logs in to an SFTP server and lists its folder.
    try_server: Callable[[int], Awaitable[dict[str, Any]]] | None = None


@dataclass
class Context:
    """Dependencies of all pages of a process."""

    bus: AsyncBus
    accounts: Accounts
    settings: ConsoleSettings
    http: HttpSettings
    history: History
    database: DatabaseFacts
    connections: Connections
    components: Components
    effective: Sequence[Effective] = ()
    cache: Cache = field(default_factory=Cache)
    more: dict[str, Any] = field(default_factory=dict)
    # Ends a sample service for that many seconds; None where no sample runs.
    crash: Callable[[str, float], None] | None = None
