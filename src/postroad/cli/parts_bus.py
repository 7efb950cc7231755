"""The service of the bus."""

from __future__ import annotations

from postroad.bus import AsyncMaintenance
from postroad.cli.parts import PartContext
from postroad.service import Service


def maintenance(context: PartContext) -> Service:
    """Make the maintenance of the bus."""
    settings = context.application.settings
    return AsyncMaintenance(
        context.dsn, settings.bus.maintenance_interval, is_pooled=settings.database.is_pooled
    )
