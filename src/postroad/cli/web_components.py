"""Opens the connections that the console's pages need to the installed components."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from postroad.cli.parts import PartContext
from postroad.console.components import Components
from postroad.console.connections import DirectConnections
from postroad.console.pages import is_there


@asynccontextmanager
async def open_components(context: PartContext) -> AsyncIterator[Components]:
    """Open the connections that pages need; they are closed at the end."""
    components = Components()
    async with AsyncExitStack() as opened:
        if is_there("postroad.exchange"):
            from postroad.cli.exchange_context import exchange_root

            components.exchange_root = exchange_root(context.application)
        if is_there("postroad.bridge.addresses"):
            from postroad.bridge.addresses import Addresses

            settings = context.application.settings.bridge
            components.bridge_addresses = Addresses.of(context.dsn, settings)
        if is_there("postroad.coordination"):
            _open_coordination(context, components)
        if is_there("postroad.intake"):
            _open_intake(context, components, opened)
        yield components


def _open_coordination(context: PartContext, components: Components) -> None:
    from postroad.cli.coordination_databases import find_databases

    databases = find_databases(context.application.settings.coordination, context.dsn)
    for part in ("writer", "coordinator", "reader"):
        components.coordination[part] = DirectConnections(getattr(databases, part))


def _open_intake(context: PartContext, components: Components, opened: AsyncExitStack) -> None:
    from postroad.cli.intake_context import make_context
    from postroad.intake.probe import try_server

    intake = make_context(context.application, context.dsn)
    components.vault = intake.vault
    engine = intake.open_engine("console")
    opened.push_async_callback(engine.close)

    async def try_one(server_id: int) -> dict[str, Any]:
        return await try_server(engine, server_id)

    components.try_server = try_one
