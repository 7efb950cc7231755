"""Names of databases and brokers in the settings, and their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from postroad.bridge.errors import AddressUnknown, SecretInAddress
from postroad.settings import BridgeSettings

HOME = "home"
Kind = Literal["database", "rabbitmq_out", "rabbitmq_in"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of databases and brokers by name; `home` is Postroad's own database."""

    home: str
    databases: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[str, str] = field(default_factory=dict)
    shards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The weight of each database of a logical queue."""

    @classmethod
    def of(cls, home: str, settings: BridgeSettings) -> Addresses:
        """Read them from the settings."""
        return cls(
            home,
            {name: url.get_secret_value() for name, url in settings.databases.items()},
            {name: url.get_secret_value() for name, url in settings.brokers.items()},
            settings.shards,
        )

    def is_broker(self, name: str) -> bool:
        """Check whether a name or an address is that of a broker."""
        return name in self.brokers or name.startswith(("amqp://", "amqps://"))

    def kind(self, source: str, target: str) -> Kind:
        """Return the kind of a bridge between two addresses. Raises AddressUnknown."""
        if self.is_broker(source):
            if self.is_broker(target):
                raise AddressUnknown(
                    "at least one end of a bridge must be a database",
                    hint="connect two brokers with RabbitMQ's own shovel",
                )
            return "rabbitmq_in"
        return "rabbitmq_out" if self.is_broker(target) else "database"

    def database(self, name: str) -> str:
        """Return the connection string of a database. Raises AddressUnknown."""
        if name == HOME:
            return self.home
        if name not in self.databases and "=" not in name and "://" not in name:
            raise _unknown(name)
        return self.databases.get(name, name)

    def broker(self, name: str) -> str:
        """Return the URL of a broker. Raises AddressUnknown."""
        if not self.is_broker(name):
            raise _unknown(name)
        return self.brokers.get(name, name)

    def refuse_secret(self, name: str) -> None:
        """Refuse an address that would put a password into a table. Raises SecretInAddress."""
        if name == HOME or name in self.databases or name in self.brokers:
            return
        if self.is_broker(name):
            passwords = {urlsplit(address).password for address in name.split(";")}
            has_secret = not passwords <= {None, "guest"}
        else:
            has_secret = "password" in conninfo_to_dict(self.database(name))
        if has_secret:
            raise SecretInAddress(
                "this address has a password, and registered bridges store no secrets",
                hint="define a name for it in bridge.databases or bridge.brokers, and use that",
            )


def _unknown(name: str) -> AddressUnknown:
    prefix, key = "POSTROAD_BRIDGE__", name.upper()
    variables = f"{prefix}DATABASES__{key}=postgresql://… or {prefix}BROKERS__{key}=amqp://…"
    return AddressUnknown(
        f"no database or broker is called {name!r}",
        hint=f"define it in the settings: {variables}",
    )
