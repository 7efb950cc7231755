"""Dependencies of pages besides the database: keys, addresses, folders, further databases.

Each is None if the component is not installed; the command line sets them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroad.console.connections import Connections


@dataclass
class Components:
    """Dependencies of the components' pages."""

    exchange_root: Path | None = None
    bridge_addresses: Any = None
    vault: Any = None
    # Connections to coordination's own databases: writer, coordinator, reader.
    coordination: dict[str, Connections] = field(default_factory=dict)
    # Logs in to an SFTP server and lists its folder.
    try_server: Callable[[int], Awaitable[dict[str, Any]]] | None = None
