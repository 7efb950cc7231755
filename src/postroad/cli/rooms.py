"""The schemas of all rooms, in the order in which they are installed."""

from __future__ import annotations

from postroad.postgres.manifest import Schema

__all__ = ["BUS", "CONSOLE", "SCHEMAS"]

BUS = Schema("mbus", "postroad.bus", ("hstore",))
CONSOLE = Schema("console", "postroad.console")
SCHEMAS: tuple[Schema, ...] = (BUS, CONSOLE)
