"""The schemas of all components, in the order in which they are installed."""

from __future__ import annotations

from postroad.postgres.manifest import Schema

BUS = Schema("mbus", "postroad.bus", ("hstore",))
ALERTS = Schema("alerts", "postroad.alerts")
BROKER = Schema("broker", "postroad.broker", ("hstore",))
BRIDGE = Schema("bridge", "postroad.bridge", ("hstore",))
EXCHANGE = Schema("exchange", "postroad.exchange")
COORDINATION = Schema("coordination", "postroad.coordination", acts_on_tables_of_users=True)
INTAKE = Schema("intake", "postroad.intake")
CONSOLE = Schema("console", "postroad.console")
SCHEMAS: tuple[Schema, ...] = (
    BUS,
    ALERTS,
    BROKER,
    BRIDGE,
    EXCHANGE,
    COORDINATION,
    INTAKE,
    CONSOLE,
)
