"""The rooms above the bus that are there; each is None until the command line opens it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Rooms"]


@dataclass
class Rooms:
    """Doors to the rooms."""

    exchange: Any = None
    coordination: Any = None
    intake: Any = None
    alerts: Any = None
    bridge: Any = None
