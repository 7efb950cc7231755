"""The services of `postroad up`, in the order in which they start.

`postroad up` runs all of them in one process and serves their interfaces on one port; `postroad
serve NAME` runs a single one, for systemd or containers, where each listens on its own port.
`make` names a function that gets a `PartContext` and returns a `Service`; it is imported when it is
needed. A service whose package is not installed is omitted.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from postroad.cli.context import Application
from postroad.service import Service

if TYPE_CHECKING:
    from postroad.web.mounts import Mounts
    from postroad.web.server import Publish


@dataclass(frozen=True, slots=True)
class PartContext:
    """The arguments that a service is created from."""

    application: Application
    dsn: str
    # The options of `up`, such as the port.
    wishes: dict[str, Any] = field(default_factory=dict)
    # The server of `up`; without one a service listens on its own port.
    mounts: Mounts | None = None
    # Stops a sample service for a number of seconds; None if the user's data could be affected.
    crash: Callable[[str, float], None] | None = None
    # Restarts a service of `up`, and the folder of their logs.
    restart: Callable[[str], bool] | None = None
    logs: Path | None = None

    def publish(self, prefix: str) -> Publish | None:
        """Return the function that mounts an application below a prefix of the server of `up`."""
        return partial(self.mounts.serving, prefix) if self.mounts is not None else None


@dataclass(frozen=True, slots=True)
class Part:
    """One service."""

    name: str
    # The module below `postroad.cli` and its function that creates the service from the context.
    make: str
    what: str
    # The required package, which an extra installs.
    needs: str = "psycopg"
    # The first path segment of its HTTP interface.
    prefix: str | None = None

    @property
    def is_sample(self) -> bool:
        """Whether it is a sample partner."""
        return self.name.startswith("sample-")

    @property
    def stage(self) -> int:
        """Its stage: components start first, then the services that need them."""
        return 1 if self.is_sample or self.name == "gateway" else 0

    def is_there(self) -> bool:
        """Check whether its package is installed."""
        return importlib.util.find_spec(self.needs) is not None

    def service(self, context: PartContext) -> Service:
        """Import and create the service."""
        return self.load()(context)

    def load(self) -> Callable[[PartContext], Service]:
        """Import the function that creates the service."""
        make: Callable[[PartContext], Service] = resolve_name(f"postroad.cli.{self.make}")
        return make


PARTS: tuple[Part, ...] = (
    Part("maintenance", "bus:maintenance", "maintenance of the bus"),
    Part("alerts", "alerts:service", "sends alerts", "apprise"),
    Part("bridges", "bridge:bridges", "run the bridges", "aio_pika"),
    Part("exchange", "parts_exchange:exchange", "files", "boto3", "/exchange"),
    Part("intake", "parts_intake:intake", "web interface of the intake", "asyncssh",
         "/intake"),
    Part("celery-worker", "parts_intake:worker", "tasks", "asyncssh"),
    Part("celery-beat", "parts_intake:beat", "schedule", "asyncssh"),
    Part("coordination", "parts_coordination:Coordination", "writer, coordinator, reader",
         "sqlalchemy"),
    Part("gateway", "parts_coordination:gateway", "web interface of coordination",
         "sqlalchemy", "/coordination"),
    Part("web", "web:WebService", "console, interfaces, metrics", "nicegui"),
    Part("sample-orders", "sample:SampleOrders", "post orders"),
    Part("sample-billing", "sample:billing", "bills orders"),
    Part("sample-tours", "sample:SampleTours", "sagas of an agency"),
    Part("sample-branch", "sample_branch:SampleBranch", "gets large orders", "aio_pika"),
    Part("sample-partners", "parts_exchange:partners", "mobile clients", "boto3"),
    Part("sample-erps", "parts_exchange:erps", "ERP instances", "boto3"),
    Part("sample-writers", "parts_coordination:writers", "change items", "sqlalchemy"),
    Part("sample-sftp", "sample_sftp:SampleSftp", "files appear", "asyncssh"),
)  # fmt: skip


def find_part(name: str) -> Part | None:
    """Return the service of this name."""
    return next((part for part in PARTS if part.name == name), None)
