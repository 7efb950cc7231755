"""Maintenance from a thread; any number of processes may run it concurrently."""

from __future__ import annotations

from datetime import timedelta

from postroad.bus.async_maintenance import MAINTENANCE_INTERVAL_DEFAULT, AsyncMaintenance
from postroad.service import LoopThread


class Maintenance(LoopThread):
    """Calls mbus.maintain from one session, twice a second or more often, and reconnects."""

    def __init__(
        self,
        dsn: str,
        interval: timedelta = MAINTENANCE_INTERVAL_DEFAULT,
        *,
        is_pooled: bool = False,
    ) -> None:
        super().__init__(AsyncMaintenance(dsn, interval, is_pooled=is_pooled))
