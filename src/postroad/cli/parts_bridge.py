"""The service of the bridges."""

from __future__ import annotations

from postroad.bridge.addresses import Addresses
from postroad.bridge.supervisor import BridgeSupervisor
from postroad.cli.parts import PartContext
from postroad.service import Service


def bridges(context: PartContext) -> Service:
    """Make the service that runs every bridge of this database."""
    settings = context.application.settings.bridge
    return BridgeSupervisor(Addresses.of(context.dsn, settings), settings)
