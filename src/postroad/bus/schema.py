"""The schema of the bus, for the migrator."""

from postroad.postgres.manifest import Schema

BUS = Schema("mbus", "postroad.bus", ("hstore",))
