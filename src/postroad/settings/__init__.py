"""Settings: one frozen model, filled from flags, environment, TOML file, defaults, in that order.

Environment names are `POSTROAD_` and the path of the setting, levels separated by two underscores:
`POSTROAD_DATABASE_URL`, `POSTROAD_BUS__LEASE=30s`. An unknown name is refused, in the environment
as in the file, because a misspelt setting would otherwise be ignored silently.
The variables `PG*` of libpq are not ours and pass through. Nothing here is read at import.
"""

from __future__ import annotations

from pathlib import Path

from postroad.settings.alerts import AlertsSettings
from postroad.settings.bridge import BridgeDefinition, BridgeSettings
from postroad.settings.coordination import CoordinationSettings
from postroad.settings.exchange import ExchangeSettings
from postroad.settings.intake import IntakeSettings
from postroad.settings.server import (
    BusSettings,
    ConsoleSettings,
    DatabaseSettings,
    EmbeddedSettings,
    HttpSettings,
    LogSettings,
    VaultSettings,
)
from postroad.settings.values import (
    DatabaseUrl,
    Duration,
    Section,
    masked_database_url,
    shown_duration,
)

__all__ = [
    "AlertsSettings", "BridgeDefinition", "BridgeSettings", "BusSettings", "ConsoleSettings",
    "CoordinationSettings", "DatabaseSettings", "Duration", "EmbeddedSettings", "ExchangeSettings",
    "HttpSettings", "IntakeSettings", "LogSettings", "Section", "Settings", "VaultSettings",
    "masked_database_url", "shown_duration",
]  # fmt: skip


class Settings(Section):
    """Everything that can be set."""

    data_folder: Path | None = None
    """Folder of the embedded server. Default: /var/lib/postroad for root, else the XDG folder."""
    database_url: DatabaseUrl | None = None
    """The database, as URL or libpq string, or `file:/path` of one. Default: the embedded one."""

    database: DatabaseSettings = DatabaseSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    bus: BusSettings = BusSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    alerts: AlertsSettings = AlertsSettings()
    logs: LogSettings = LogSettings()
    bridge: BridgeSettings = BridgeSettings()
    http: HttpSettings = HttpSettings()
    console: ConsoleSettings = ConsoleSettings()
    vault: VaultSettings = VaultSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    intake: IntakeSettings = IntakeSettings()
