"""What pages need of the components besides the database: keys, addresses, folders, more databases.

Each is None where the component is not installed; the command line fills them in.
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
