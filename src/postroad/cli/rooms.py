"""The schemas of all rooms, in the order in which they are installed."""

from __future__ import annotations

from postroad.postgres.manifest import Schema

__all__ = ["BRIDGE", "BUS", "COORDINATION", "SCHEMAS"]

BUS = Schema("mbus", "postroad.bus", ("hstore",))
BRIDGE = Schema("bridge", "postroad.bridge", ("hstore",))
COORDINATION = Schema("coordination", "postroad.coordination")
SCHEMAS: tuple[Schema, ...] = (BUS, BRIDGE, COORDINATION)
