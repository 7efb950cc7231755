"""The schemas of all components, in the order in which they are installed."""

from __future__ import annotations

from postroad.bus.schema import BUS
from postroad.postgres.connections import connect
from postroad.postgres.manifest import Schema
from postroad.postgres.migrator import install

ALERTS = Schema("alerts", "postroad.alerts")
BROKER = Schema("broker", "postroad.broker", ("hstore",))
BRIDGE = Schema("bridge", "postroad.bridge", ("hstore",))
EXCHANGE = Schema("exchange", "postroad.exchange")
COORDINATION = Schema("coordination", "postroad.coordination", acts_on_tables_of_users=True)
INTAKE = Schema("intake", "postroad.intake")
CONSOLE = Schema("console", "postroad.console")
SCHEMAS: tuple[Schema, ...] = (BUS, ALERTS, BROKER, BRIDGE, EXCHANGE, COORDINATION, INTAKE, CONSOLE)


def install_all(dsn: str) -> None:
    """Install missing schemas, and upgrade existing ones to this version."""
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
