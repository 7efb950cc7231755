"""What pages need of the rooms besides the database: keys, addresses, folders, more databases.

Each is None where the room is not installed; the command line fills them in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroad.console.doors import Doors

__all__ = ["Rooms"]


@dataclass
class Rooms:
    """Doors to the rooms."""

    exchange_root: Path | None = None
    bridge_addresses: Any = None
    vault: Any = None
    # Doors to coordination's own databases: writer, coordinator, reader.
    coordination: dict[str, Doors] = field(default_factory=dict)
    # Logs in to an SFTP server and looks into its folder.
    try_server: Callable[[int], Awaitable[dict[str, Any]]] | None = None
