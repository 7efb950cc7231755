"""The schemas of all rooms, in the order in which they are installed."""

from __future__ import annotations

from postroad.postgres.manifest import Schema

__all__ = ["ALERTS", "BROKER", "BUS", "INTAKE", "SCHEMAS"]

BUS = Schema("mbus", "postroad.bus", ("hstore",))
BROKER = Schema("broker", "postroad.broker", ("hstore",))
ALERTS = Schema("alerts", "postroad.alerts")
INTAKE = Schema("intake", "postroad.intake")
SCHEMAS: tuple[Schema, ...] = (BUS, BROKER, ALERTS, INTAKE)
