"""The schema of the bus, for the migrator."""

from __future__ import annotations

from postroad.postgres.manifest import Schema

BUS = Schema("mbus", "postroad.bus", ("hstore",))
