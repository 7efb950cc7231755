"""Opens what the console's pages need of the rooms that are installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from postroad.cli.parts import PartContext
from postroad.console.doors import DirectDoors
from postroad.console.pages import is_there
from postroad.console.rooms import Rooms

__all__ = ["open_rooms"]


@asynccontextmanager
async def open_rooms(context: PartContext) -> AsyncIterator[Rooms]:
    """Give the doors to the rooms; closed at the end."""
    rooms = Rooms()
    async with AsyncExitStack() as opened:
        if is_there("postroad.exchange"):
            from postroad.cli.exchange_context import exchange_root

            rooms.exchange_root = exchange_root(context.application)
        if is_there("postroad.bridge.addresses"):
            from postroad.bridge.addresses import Addresses

            settings = context.application.settings.bridge
            rooms.bridge_addresses = Addresses.of(context.dsn, settings)
        if is_there("postroad.coordination"):
            _open_coordination(context, rooms)
        if is_there("postroad.intake"):
            _open_intake(context, rooms, opened)
        yield rooms


def _open_coordination(context: PartContext, rooms: Rooms) -> None:
    from postroad.cli.parts_coordination import find_databases

    databases = find_databases(context)
    for part in ("writer", "coordinator", "reader"):
        rooms.coordination[part] = DirectDoors(getattr(databases, part))


def _open_intake(context: PartContext, rooms: Rooms, opened: AsyncExitStack) -> None:
    from postroad.intake.engine import open_engine
    from postroad.intake.probing import try_server

    application = context.application
    rooms.vault = application.vault()
    engine = open_engine(
        context.dsn, application.settings.intake, rooms.vault, application.data_folder, "console"
    )
    opened.push_async_callback(engine.close)

    async def try_one(server_id: int) -> dict[str, Any]:
        return await try_server(engine, server_id)

    rooms.try_server = try_one
